// Everything that is asked of the studio. An error is the studio's own sentence.

import { $ } from "./dom.js";

const KEY = "masil-token";

// The token comes in the address after '#', which browsers never send; it is kept for this tab alone.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

async function logIn() {
  const dialog = $("login");
  if (!dialog.open) {
    $("token").value = "";
    dialog.showModal();
  }
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  const token = $("token").value.trim();
  if (dialog.returnValue !== "yes" || !token) return false;
  sessionStorage.setItem(KEY, token);
  return true;
}

async function call(method, path, body) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body && !(body instanceof FormData)) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, credentials: "omit", cache: "no-store" });
  } catch {
    throw new Error("The studio does not answer; is `masil serve` still running?");
  }
  if (answer.status === 401 && (await logIn())) return call(method, path, body);
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.error ?? `The studio answered with status ${answer.status}.`);
  return content;
}

function form(values, field, files) {
  const made = new FormData();
  for (const [name, value] of Object.entries(values)) made.append(name, String(value));
  for (const file of files) made.append(field, file, file.name || "photo.jpg");
  return made;
}

export const info = () => call("GET", "/api/info");
export const predict = (files, top = 5) => call("POST", "/api/predict", form({ top }, "images", files));
export const explain = (file, concepts = 3) => call("POST", "/api/explain", form({ concepts }, "image", [file]));
export const undo = (session, by) => call("POST", "/api/undo", { session, by: by || null });
export const learn = (name, files, taughtBy, update) =>
  call("POST", "/api/learn", form({ name, taught_by: taughtBy, update }, "images", files));
export const forget = (name, by) =>
  call("DELETE", `/api/classes/${encodeURIComponent(name)}${by ? `?by=${encodeURIComponent(by)}` : ""}`);
