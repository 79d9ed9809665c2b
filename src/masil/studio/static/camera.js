// The camera in a dialog: each press takes a photo, until it is closed.

import { $, complain, many } from "./dom.js";

export async function takePhotos(taken) {
  const [dialog, view, take] = [$("camera"), $("camera-view"), $("camera-take")];
  let count = 0;
  complain("camera-problem", null);
  $("camera-count").textContent = "";
  take.disabled = true;
  dialog.showModal();
  const stream = await open();
  if (stream && !dialog.open) return stop(stream);
  if (stream) {
    view.srcObject = stream;
    take.disabled = false;
    take.focus();
  }

  take.onclick = async () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [view.videoWidth, view.videoHeight];
    if (!canvas.width) return;
    canvas.getContext("2d").drawImage(view, 0, 0);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
    count += 1;
    $("camera-count").textContent = `${many(count, "photo")} taken.`;
    taken(new File([blob], `camera-${count}.jpg`, { type: "image/jpeg" }));
  };
  $("camera-close").onclick = () => dialog.close();
  dialog.addEventListener("close", () => stop(stream), { once: true });
}

async function open() {
  if (!navigator.mediaDevices?.getUserMedia) {
    complain("camera-problem", "Browsers open the camera only at localhost or over HTTPS. “Choose photos” offers the camera on a phone.");
    return null;
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1280 } } });
  } catch (error) {
    const none = error.name === "NotFoundError";
    complain("camera-problem", none ? "There is no camera on this machine." : "The browser does not let this page use the camera.");
    return null;
  }
}

function stop(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
  $("camera-view").srcObject = null;
}
