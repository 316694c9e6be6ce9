"use strict";
// The live board: its markup comes from the server, which escapes it.
const board = document.getElementById("board");
if (board) {
  const feed = document.getElementById("feed");
  setInterval(async () => {
    try {
      const reply = await fetch(board.dataset.source);
      if (!reply.ok) throw new Error(reply.statusText);
      board.innerHTML = await reply.text();
      feed.textContent = "Live.";
    } catch {
      feed.textContent = "The connection is lost; trying again.";
    }
  }, 1000);
}
// The replayer: one step at a time, with the address of each.
const turns = [...document.querySelectorAll(".replayer .turn")];
const links = [...document.querySelectorAll(".strip a")];
let at = 0;  // 0: all
const show = (number, scroll) => {
  at = Math.max(0, Math.min(turns.length, number));
  turns.forEach((turn, index) => { turn.open = !at || index + 1 === at; });
  links.forEach((link, index) => link.toggleAttribute("aria-current", index + 1 === at));
  if (at && scroll) turns[at - 1].scrollIntoView({ block: "nearest" });
};
const go = (number) => {
  show(number, true);
  history.replaceState(null, "", at ? `#step-${at}` : location.pathname + location.search);
};
const linked = () => {
  const found = /^#step-(\d+)$/.exec(location.hash);
  if (found && !document.getElementById("next")) show(Number(found[1]), false);
};
if (turns.length) {
  document.querySelector(".scripted").hidden = false;
  for (const button of document.querySelectorAll("[data-by]"))
    button.addEventListener("click", () => go(button.dataset.by === "0" ? 0 : at + Number(button.dataset.by)));
  addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Escape: -Infinity }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    go(at + by);
  });
  addEventListener("hashchange", linked);
  linked();
}
const text = document.querySelector("textarea");
text?.focus({ preventScroll: true });
text?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
});
