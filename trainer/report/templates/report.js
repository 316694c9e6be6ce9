"use strict";
// Choosers show one item of a box at a time. Without this script all items can be opened.
for (const box of document.querySelectorAll(".chooser-box")) {
  const items = [...box.querySelectorAll(":scope > .item")];
  const groups = [...new Set(items.map((item) => item.dataset.group))];
  const bar = document.createElement("div");
  bar.className = "chooser";
  const make = (name, wide) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    label.append(name, select);
    if (wide) label.className = "wide";
    bar.append(label);
    return select;
  };
  const group = make(box.dataset.group, false);
  const item = make(box.dataset.name, true);
  group.append(...groups.map((name) => new Option(name, name)));
  const fill = () => {
    const members = items.filter((one) => one.dataset.group === group.value);
    item.replaceChildren(...members.map((one) => new Option(one.dataset.label, one.id)));
  };
  const button = (text, by) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => choose(items[items.findIndex((one) => one.id === item.value) + by]));
    bar.append(made);
    return made;
  };
  const previous = button("previous", -1);
  const next = button("next", 1);
  const show = () => {
    items.forEach((one) => { one.hidden = one.id !== item.value; one.open = !one.hidden; });
    previous.disabled = items[0].id === item.value;
    next.disabled = items[items.length - 1].id === item.value;
  };
  const choose = (one) => {
    if (!one) return;
    group.value = one.dataset.group;
    fill();
    item.value = one.id;
    show();
  };
  group.addEventListener("change", () => { fill(); show(); });
  item.addEventListener("change", show);
  box.prepend(bar);
  const linked = () => choose(items.find((one) => "#" + one.id === location.hash));
  box.classList.add("live");
  choose(items.find((one) => one.open) ?? items[0]);
  linked();
  addEventListener("hashchange", linked);
}
// Charts: show the values under the pointer, or under a line moved by the arrow keys, below the picture.
for (const plot of document.querySelectorAll(".plot")) {
  const svg = plot.querySelector("svg");
  const hits = [...svg.querySelectorAll(".hit")];
  const readout = plot.parentElement.querySelector(".readout");
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", hits[0].getAttribute("y"));
  cursor.setAttribute("y2", Number(hits[0].getAttribute("y")) + Number(hits[0].getAttribute("height")));
  let at = -1;
  const point = (index) => {
    at = Math.max(0, Math.min(hits.length - 1, index));
    const x = hits[at].dataset.x;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    svg.insertBefore(cursor, hits[0]);
    readout.textContent = hits[at].dataset.values;
  };
  for (const [index, hit] of hits.entries()) {
    hit.dataset.values = hit.querySelector("title").textContent;
    hit.querySelector("title").remove();
    hit.addEventListener("pointerenter", () => point(index));
    hit.addEventListener("pointerdown", () => point(index));
  }
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", svg.querySelector("title").textContent + ": left and right arrow keys show its values");
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: hits.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    point(to);
  });
  plot.addEventListener("pointerleave", () => { cursor.remove(); readout.textContent = ""; });
}
