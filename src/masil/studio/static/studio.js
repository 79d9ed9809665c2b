// Puts the parts of the page together.

import * as api from "./api.js";
import { Ask } from "./ask.js";
import { $, announce, complain, sure } from "./dom.js";
import { Model } from "./model.js";
import { Teach } from "./teach.js";

let revision = null;

async function refresh() {
  try {
    const card = await api.info();
    revision = card.revision;
    model.show(card);
    teach.knows(card);
    ask.tray.limits = card.limits;
    complain("history-problem", null);
  } catch (error) {
    complain("history-problem", error);
  }
}

async function changed() {
  await refresh();
  await ask.ask();
}

const ask = new Ask({
  teachWith: (file) => teach.add(file),
  answered: (newer) => newer !== revision && refresh(),
});

const teach = new Teach({ changed });

const model = new Model({
  undo: (session) => teach.undo(session, "history-problem"),
  forget: async (label) => {
    if (!(await sure(`Forget ${label}?`, "It is erased from every session. This cannot be undone.", "Forget"))) return;
    try {
      await api.forget(label, teach.teacher);
      announce(`${label} is forgotten.`);
      await changed();
      $("known").focus();
    } catch (error) {
      complain("history-problem", error);
    }
  },
});

// A photo that misses the tray must not replace the page; one that is pasted is asked about.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
window.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])].filter((file) => file.type.startsWith("image/"));
  if (files.length) ask.tray.add(files);
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());

refresh();
