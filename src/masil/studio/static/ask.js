// Asking: photos in, the answer with its confidence out, and why.

import * as api from "./api.js";
import { $, announce, complain, el, percent } from "./dom.js";
import { Tray } from "./photos.js";
import { clearWhy, showWhy } from "./why.js";

const UNSURE = 0.5;

export class Ask {
  // `teachWith(file)` hands a photo over to teaching; `answered(revision)` says which model has answered.
  constructor({ teachWith, answered }) {
    this.answered = answered;
    this.current = null;
    this.turn = 0; // only the newest question is shown
    this.tray = new Tray($("ask-tray"), {
      changed: (photos, added) => this.ask(added[0] ?? (photos.includes(this.current) ? this.current : photos[0])),
      refused: (error) => complain("ask-problem", error),
      chosen: (photo) => this.show(photo),
    });
    $("to-teach").addEventListener("click", () => this.current && teachWith(this.current.file));
  }

  // Asks about every photo in the tray, and shows one of them.
  async ask(photo = this.current) {
    const turn = ++this.turn;
    this.current = photo ?? null; // whoever chooses another photo meanwhile is shown that one
    if (!photo) {
      $("answer").hidden = true;
      return;
    }
    this.tray.place.setAttribute("aria-busy", "true");
    const photos = [...this.tray.photos];
    try {
      const answer = await api.predict(photos.map((each) => each.file));
      if (turn !== this.turn) return;
      complain("ask-problem", null);
      photos.forEach((each, place) => { each.prediction = answer.predictions[place]; });
      this.label(photos);
      this.show(this.current);
      announce(`Photo ${photos.indexOf(this.current) + 1}: ${words(this.current.prediction)}.`);
      this.answered(answer.revision);
    } catch (error) {
      if (turn !== this.turn) return;
      complain("ask-problem", error);
      $("answer").hidden = !this.current?.prediction;
    } finally {
      if (turn === this.turn) this.tray.place.removeAttribute("aria-busy");
    }
  }

  label(photos) {
    photos.forEach((photo, place) => {
      photo.button.setAttribute("aria-label", `Photo ${place + 1}: ${words(photo.prediction)}`);
      photo.button.title = words(photo.prediction);
    });
  }

  async show(photo) {
    this.current = photo;
    this.tray.mark(photo);
    if (!photo.prediction) return; // `ask` is on its way, and shows it
    const { label, confidence, unknown, top } = photo.prediction;
    $("answer").hidden = false;
    $("verdict").textContent = unknown ? "Unknown" : label;
    $("verdict").classList.toggle("unsure", Boolean(unknown) || confidence < UNSURE);
    $("verdict-note").textContent = note(photo.prediction);
    $("bars").replaceChildren(...top.map((share, place) => bar(share, place === 0 && !unknown)));
    $("seen").src = photo.url;
    $("seen").alt = `The photo, taken for ${unknown ? "unknown" : label}`;
    $("stage-caption").textContent = photo.file.name;
    clearWhy();
    try {
      const why = await api.explain(photo.file);
      if (photo === this.current) showWhy(why);
    } catch (error) {
      if (photo === this.current) clearWhy(error.message);
    }
  }
}

function words({ label, confidence, unknown }) {
  return unknown ? `unknown, nearest ${label}` : `${label}, ${percent(confidence)}`;
}

function note({ label, confidence, unknown }) {
  if (unknown) return `It looks like nothing that was taught; the nearest class is ${label}.`;
  if (confidence < UNSURE) return `Not sure: ${percent(confidence)}. Perhaps this is a class to teach.`;
  return `${percent(confidence)} sure`;
}

function bar({ label, probability }, first) {
  const fill = el("span", { className: "fill", style: { width: `${Math.max(0.5, 100 * probability)}%` } });
  return el(
    "li", { className: first ? "first" : "" },
    el("span", { className: "bar-label", title: label }, label),
    el("span", { className: "bar", "aria-hidden": "true" }, fill),
    el("span", { className: "number" }, percent(probability)),
  );
}
