// Why: concepts as heat maps over what the model saw, and what each added for the class against the runner-up.

import { $, el, signed } from "./dom.js";

export function clearWhy(sentence = "Looking for the reasons …") {
  for (const heat of document.querySelectorAll("#canvas .heat")) heat.remove();
  $("evidence").replaceChildren();
  $("why-line").textContent = sentence;
  $("why").setAttribute("aria-busy", "true");
}

export function showWhy(why) {
  clearWhy("");
  $("seen").src = why.framed;
  const seen = why.evidence.some((each) => each.heat);
  $("stage-caption").textContent = seen ? "Where the strongest concept lies" : "What the model saw";
  const other = why.runner_up === null ? "" : ` against ${why.runner_up}`;
  $("why-line").textContent = seen
    ? `What spoke for ${why.label}${other}; the bars add up to ${signed(why.difference)}.`
    : `No concept spoke for ${why.label}${other}: it is told apart by what lies beyond them.`;
  const rows = [
    ...why.evidence.map((each) => ({ ...each, name: `Concept ${each.concept}` })),
    { name: "Other concepts", contribution: why.others },
    { name: "Beyond the concepts", contribution: why.rest },
    { name: "Balance of classes", contribution: why.offset },
  ];
  const most = Math.max(...rows.map((row) => Math.abs(row.contribution)), 1e-9);
  $("evidence").replaceChildren(...rows.map((row, place) => line(row, most, place === 0)));
  $("why").setAttribute("aria-busy", "false");
}

function line(row, most, first) {
  const share = (50 * Math.abs(row.contribution)) / most;
  const against = row.contribution < 0;
  const style = { width: `${share}%`, left: `${against ? 50 - share : 50}%` };
  if (row.colour) style["background-color"] = row.colour;
  const fill = el("span", { className: against ? "fill against" : "fill", style });
  return el(
    "li", {},
    row.heat ? toggle(row, first) : el("span", { className: "reason" }, row.name),
    el("span", { className: "bar both", "aria-hidden": "true" }, fill),
    el("span", { className: "number" }, signed(row.contribution)),
  );
}

// A button that lays a concept's heat map over the photo, or takes it off.
function toggle(row, shown) {
  const heat = el("img", { className: "heat", src: row.heat, alt: `Where ${row.name.toLowerCase()} lies`, hidden: !shown });
  $("canvas").append(heat);
  const chip = el("span", { className: "chip", style: { "background-color": row.colour } });
  const button = el("button", { type: "button", className: "reason", "aria-pressed": String(shown), title: "Show where" }, chip, row.name);
  button.addEventListener("click", () => {
    heat.hidden = !heat.hidden;
    button.setAttribute("aria-pressed", String(!heat.hidden));
    $("stage-caption").textContent = "Where the chosen concepts lie";
  });
  return button;
}
