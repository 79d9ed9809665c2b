// Teaching: a name, some photos, Learn; then what is known now, and what it may be confused with.

import * as api from "./api.js";
import { $, announce, complain, cosine, el, many } from "./dom.js";
import { Tray } from "./photos.js";

const TEACHER = "masil-teacher";

export class Teach {
  // `changed()` is called once the model is another one.
  constructor({ changed }) {
    this.changed = changed;
    this.known = new Map(); // name → images
    this.tray = new Tray($("teach-tray"), {
      changed: () => this.update(),
      refused: (error) => complain("teach-problem", error),
    });
    $("teacher").value = localStorage.getItem(TEACHER) ?? "";
    $("class-name").addEventListener("input", () => this.update());
    $("teach-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.learn();
    });
    $("lesson-undo").addEventListener("click", () => this.undo(this.session, $("teach-problem").id));
    this.update();
  }

  get teacher() {
    return $("teacher").value.trim();
  }

  knows(card) {
    this.tray.limits = card.limits;
    $("class-name").maxLength = card.limits.name_length;
    this.known = new Map(card.classes.map((each) => [each.label, each.images]));
    $("class-list").replaceChildren(...card.classes.map((each) => el("option", { value: each.label })));
    this.update();
  }

  add(file) {
    this.tray.add([file]);
    $("class-name").focus();
  }

  update() {
    const name = $("class-name").value.trim();
    const again = this.known.has(name);
    const photos = many(this.tray.photos.length, "photo");
    $("name-note").textContent = again
      ? `Known from ${many(this.known.get(name), "photo")}; what you add makes it surer.`
      : "Five photos are enough.";
    $("learn").textContent = this.tray.photos.length ? `${again ? "Add" : "Learn from"} ${photos}` : "Learn";
  }

  missing() {
    if (!$("class-name").value.trim()) return ["class-name", "The class has no name yet; type one."];
    if (!this.tray.photos.length) return [null, "There are no photos yet; drop some, five if you have them."];
    return null;
  }

  async learn() {
    const missing = this.missing();
    complain("teach-problem", missing?.[1] ?? null);
    if (missing) {
      (missing[0] ? $(missing[0]) : this.tray.place.querySelector("input[type=file]")).focus();
      return;
    }
    const [button, name] = [$("learn"), $("class-name").value.trim()];
    button.disabled = true;
    button.textContent = "Learning …";
    $("lesson").hidden = true;
    localStorage.setItem(TEACHER, this.teacher);
    const start = performance.now();
    try {
      const learnt = await api.learn(name, this.tray.files, this.teacher, this.known.has(name));
      this.show(learnt, (performance.now() - start) / 1000);
      this.tray.clear();
      $("class-name").value = "";
      await this.changed();
    } catch (error) {
      complain("teach-problem", error);
    } finally {
      button.disabled = false;
      this.update();
    }
  }

  show(learnt, seconds) {
    this.session = learnt.session.number;
    $("lesson-line").textContent =
      `${learnt.label} is known: ${learnt.recognised} of ${many(learnt.images, "photo")} recognised, in ${seconds.toFixed(2)} s.`;
    $("lesson-near").replaceChildren(
      ...learnt.confused_with.map((near) =>
        el("li", {}, el("span", { className: "near-name" }, near.label), el("span", { className: "number" }, cosine(near.cosine))),
      ),
    );
    $("lesson").hidden = false;
    $("lesson-undo").hidden = false;
    $("lesson").focus({ preventScroll: true });
    $("lesson").scrollIntoView({ block: "nearest" });
    const near = learnt.confused_with.map((each) => each.label).join(", ");
    announce(`${$("lesson-line").textContent} May be confused with ${near || "nothing"}.`);
  }

  async undo(session, problem) {
    complain(problem, null);
    try {
      const undone = await api.undo(session, this.teacher);
      const names = undone.session.classes.map((each) => each.label).join(", ");
      announce(`Undone: ${names}.`);
      $("lesson-line").textContent = `Undone: ${names}.`;
      $("lesson-near").replaceChildren();
      $("lesson").hidden = session !== this.session;
      $("lesson-undo").hidden = true;
      await this.changed();
    } catch (error) {
      complain(problem, error);
      await this.changed();
    }
  }
}
