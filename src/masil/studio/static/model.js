// The model: what it knows, how it came to know it, and its card.

import { $, bytes, cosine, el, many } from "./dom.js";

const FILTER_FROM = 10;

export class Model {
  // `forget(label)` and `undo(session)` are called when someone asks for it.
  constructor({ forget, undo }) {
    this.forget = forget;
    this.undo = undo;
    $("known-filter").addEventListener("input", () => this.filter());
    $("undo").addEventListener("click", () => this.undo(this.last));
  }

  show(card) {
    this.last = card.sessions.at(-1).number;
    document.title = `${card.name} – masil studio`;
    $("model-name").textContent = card.name;
    $("figure-classes").textContent = card.classes.length.toLocaleString("en");
    $("figure-sessions").textContent = card.sessions.length.toLocaleString("en");
    $("figure-memory").textContent = bytes(card.memory_bytes);
    $("undo").disabled = card.sessions.length < 2;
    $("known-filter").hidden = card.classes.length < FILTER_FROM;
    $("known").replaceChildren(...card.classes.toReversed().map((each) => this.known(each)));
    $("history").replaceChildren(...card.log.toReversed().map(line));
    $("card").replaceChildren(...facts(card).flatMap(([term, fact]) => [el("dt", {}, term), el("dd", {}, fact)]));
    this.filter();
  }

  filter() {
    const wanted = $("known-filter").hidden ? "" : $("known-filter").value.trim().toLocaleLowerCase();
    for (const row of $("known").children) row.hidden = !row.dataset.label.toLocaleLowerCase().includes(wanted);
  }

  known(each) {
    const near = each.nearest ? ` · nearest ${each.nearest.label} ${cosine(each.nearest.cosine)}` : "";
    const row = el(
      "li", { className: each.session ? "new" : "" },
      el("span", { className: "known-name", title: each.label }, each.label),
      el("span", { className: "quiet known-note" }, `${many(each.images, "photo")}${near}`),
      el("button", { type: "button", className: "link", "aria-label": `Forget ${each.label}`, onclick: () => this.forget(each.label) }, "Forget"),
    );
    row.dataset.label = each.label;
    return row;
  }
}

function line(event) {
  const names = event.classes.map((each) => each.label);
  const shown = names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
  const photos = many(event.classes.reduce((sum, each) => sum + each.images, 0), "photo");
  const title = event.session === 0 ? `Base session: ${many(names.length, "class", "classes")}` : shown;
  const when = new Date(event.when);
  return el(
    "li", { className: event.what },
    el("p", { className: "event" }, el("span", { className: "what" }, event.what), el("span", { className: "event-name" }, title)),
    el("p", { className: "quiet" }, `${photos} · ${event.who} · `, el("time", { dateTime: event.when }, when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }))),
  );
}

function facts(card) {
  return [
    ["File", card.name],
    ["Backbone", `${card.backbone}, ${card.image_side} × ${card.image_side} px, ${card.features.toLocaleString("en")} features`],
    ["Embedding", card.embedding],
    ["Concepts", card.concepts.toLocaleString("en")],
    ["Memory", `${bytes(card.memory_bytes)}, ${bytes(card.bytes_per_class)} for each class; no photo is kept`],
    ["Temperature", card.temperature.toFixed(1)],
    ["Revision", card.revision.toLocaleString("en")],
    ["Made with", `masil ${card.masil}`],
  ];
}
