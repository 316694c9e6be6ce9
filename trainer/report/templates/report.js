"use strict";
// Browsers: filters, a list of the items that pass them, and one item, unpacked when it is shown.
const make = (tag, name, parent) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (parent) parent.append(made);
  return made;
};
const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};
for (const box of document.querySelectorAll(".browser")) {
  const index = JSON.parse(box.querySelector(".index").textContent);
  const packed = JSON.parse(box.querySelector(".chunks").textContent);
  const items = index.items.map(([id, label, facets, outcomes], place) => ({ id, label, facets, outcomes, place }));
  const noun = box.dataset.noun;
  const bar = make("div", "chooser", box);
  const field = (name, tag, parent, wide) => {
    const label = make("label", wide ? "wide" : "", parent);
    label.append(name);
    return make(tag, "", label);
  };
  const options = (select, values, first) => {
    select.append(...(first ? [new Option(first, "")] : []), ...values.map((one) => new Option(one, one)));
  };
  const search = field("text contains", "input", bar);
  search.type = "search";
  const filters = index.facets.map((name, place) => {
    const select = field(name, "select", bar);
    options(select, [...new Set(items.map((one) => one.facets[place]))], "any");
    return select;
  });
  let policy, outcome;
  if (index.policies.length) {
    if (index.policies.length > 1) {
      policy = field("policy", "select", bar);
      policy.append(new Option("any", ""), ...index.policies.map((name, place) => new Option(name, place)));
    }
    outcome = field("outcome", "select", bar);
    options(outcome, [...new Set(items.flatMap((one) => one.outcomes.flat()))].sort(), "any");
  }
  const row = make("div", "chooser", box);
  const list = field(noun, "select", row, true);
  const button = (text, by) => {
    const made = make("button", "", row);
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => { list.selectedIndex += by; show(); });
    return made;
  };
  const previous = button("previous", -1);
  const next = button("next", 1);
  const found = make("output", "small", row);
  const view = make("article", "item", box);
  const chunks = new Map();
  let wanted = -1;
  const show = async () => {
    const place = list.value === "" ? -1 : Number(list.value);
    wanted = place;
    previous.disabled = list.selectedIndex <= 0;
    next.disabled = list.selectedIndex >= list.length - 1;
    if (place < 0) { view.hidden = true; return; }
    const chunk = Math.floor(place / index.chunk);
    if (!chunks.has(chunk)) chunks.set(chunk, unpack(packed[chunk]));
    let markup;
    try { markup = (await chunks.get(chunk))[place % index.chunk]; }
    catch { found.textContent = "this browser can't unpack the page: use one of 2023 or later"; return; }
    if (wanted !== place) return;
    view.hidden = false;
    view.id = items[place].id;
    view.innerHTML = markup;  // escaped by the template; the page's policy runs no script of it
  };
  const passes = (one) => {
    if (search.value && !one.label.toLowerCase().includes(search.value.toLowerCase())) return false;
    if (filters.some((select, place) => select.value && select.value !== one.facets[place])) return false;
    if (!outcome || !outcome.value && !policy?.value) return true;
    const played = policy?.value ? [one.outcomes[policy.value]] : one.outcomes;
    return outcome.value ? played.flat().includes(outcome.value) : played.flat().length > 0;
  };
  const fill = (chosen) => {
    const members = items.filter(passes);
    list.replaceChildren(...members.map((one) => new Option(one.label, one.place)));
    if (members.includes(chosen)) list.value = chosen.place;
    found.textContent = `${members.length.toLocaleString("en")} of ${items.length.toLocaleString("en")}`;
    show();
  };
  const current = () => items[Number(list.value)];
  for (const one of [search, policy, outcome, ...filters]) one?.addEventListener("input", () => fill(current()));
  list.addEventListener("input", show);
  const linked = () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { return false; }
    const one = items.find((item) => item.id === id);
    if (!one) return false;
    for (const control of [search, policy, outcome, ...filters]) if (control) control.value = "";
    fill(one);
    view.scrollIntoView();
    return true;
  };
  if (!linked()) fill(items[index.first]);
  addEventListener("hashchange", linked);
}
