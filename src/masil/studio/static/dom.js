// Small pieces that every part of the page is made of. Text goes in as text, never as markup.

export const $ = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role" || name === "for") made.setAttribute(name, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) made.style.setProperty(key, each);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Read out by screen readers without moving the focus. The space makes a repeated sentence a new one.
export function announce(sentence) {
  const place = $("announcer");
  place.textContent = place.textContent === sentence ? `${sentence}\u00a0` : sentence;
}

export function complain(id, error) {
  const place = $(id);
  place.hidden = !error;
  place.textContent = error ? error.message ?? String(error) : "";
}

export const percent = (share) => (share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);
export const cosine = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−"));
export const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
export const many = (count, word, words = `${word}s`) => `${count.toLocaleString("en")} ${count === 1 ? word : words}`;

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(0)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

export async function sure(title, text, yes) {
  const dialog = $("sure");
  $("sure-title").textContent = title;
  $("sure-text").textContent = text;
  $("sure-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  return dialog.returnValue === "yes";
}
