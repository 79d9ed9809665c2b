// A tray of photos: dropped, chosen, pasted or taken; looked at and removed, by mouse or keyboard.

import { announce, bytes, el, many } from "./dom.js";
import { takePhotos } from "./camera.js";

export class Tray {
  // `changed(photos)` is called after every change, `refused(error)` with a sentence or null.
  constructor(place, { changed, refused, chosen = null }) {
    this.place = place;
    this.drop = place.querySelector(".drop");
    this.list = place.querySelector(".thumbs");
    this.limits = { images: 50, image_bytes: 30e6 };
    this.photos = []; // {file, url, button}
    this.changed = changed;
    this.refused = refused;
    this.chosen = chosen;
    this.listen();
  }

  listen() {
    const input = this.place.querySelector("input[type=file]");
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    this.place.querySelector(".camera").addEventListener("click", () => takePhotos((file) => this.add([file])));
    for (const kind of ["dragenter", "dragover"]) {
      this.place.addEventListener(kind, (event) => {
        event.preventDefault();
        this.drop.classList.add("over");
      });
    }
    this.place.addEventListener("dragleave", (event) => {
      if (!this.place.contains(event.relatedTarget)) this.drop.classList.remove("over");
    });
    this.place.addEventListener("drop", (event) => {
      event.preventDefault();
      this.drop.classList.remove("over");
      this.add([...event.dataTransfer.files]);
    });
  }

  get files() {
    return this.photos.map((photo) => photo.file);
  }

  add(files) {
    this.refused(null);
    const taken = [];
    for (const file of files) {
      if (file.size > this.limits.image_bytes) {
        this.refused(new Error(`${file.name} has ${bytes(file.size)}; at most ${bytes(this.limits.image_bytes)} are taken.`));
      } else if (this.photos.length + taken.length >= this.limits.images) {
        this.refused(new Error(`At most ${this.limits.images} photos are taken at once; the others were left out.`));
        break;
      } else {
        taken.push({ file, url: URL.createObjectURL(file) });
      }
    }
    if (!taken.length) return;
    this.photos.push(...taken);
    this.draw();
    announce(`${many(this.photos.length, "photo")} in the tray.`);
    this.changed(this.photos, taken);
  }

  remove(photo) {
    const place = this.photos.indexOf(photo);
    this.photos.splice(place, 1);
    URL.revokeObjectURL(photo.url);
    this.draw();
    const next = this.photos[Math.min(place, this.photos.length - 1)];
    (next ? next.remove : this.place.querySelector("input[type=file]")).focus();
    announce(`Photo removed; ${many(this.photos.length, "photo")} left.`);
    this.changed(this.photos, []);
  }

  clear() {
    for (const photo of this.photos) URL.revokeObjectURL(photo.url);
    this.photos = [];
    this.draw();
  }

  // Marks one photo as the one that is shown.
  mark(current) {
    for (const photo of this.photos) photo.button.setAttribute("aria-pressed", String(photo === current));
  }

  draw() {
    this.place.classList.toggle("filled", this.photos.length > 0);
    this.list.replaceChildren(
      ...this.photos.map((photo, place) => {
        const name = `Photo ${place + 1}`;
        const picture = el("img", { src: photo.url, alt: this.chosen ? "" : `${name}: ${photo.file.name}` });
        photo.button = this.chosen
          ? el("button", { type: "button", className: "thumb", title: photo.file.name, "aria-label": name, "aria-pressed": "false", onclick: () => this.chosen(photo) }, picture)
          : el("span", { className: "thumb", title: photo.file.name }, picture);
        photo.remove = el("button", { type: "button", className: "remove", "aria-label": `Remove ${name.toLowerCase()}`, onclick: () => this.remove(photo) }, "×");
        return el("li", {}, photo.button, photo.remove);
      }),
    );
  }
}
