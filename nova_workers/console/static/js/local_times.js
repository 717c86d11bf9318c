// The instant of a date and a time of day, beside their field: computed by the console, which knows all zones.

import { showTimes } from "./parts.js";

const WAIT_MS = 200;

for (const field of document.querySelectorAll("[data-local-time]")) {
  const zone = field.form.elements.timezone;
  const shown = field.closest(".field").querySelector("output");
  let timer = 0;
  let newest = 0;
  const ask = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const turn = ++newest;
      const given = new URLSearchParams({ at: field.value, timezone: zone.value });
      const answer = await fetch(`/local-time?${given}`, { headers: { "nova-fragment": "preview" } }).catch(() => undefined);
      // An answer that was overtaken by a later one is dropped.
      if (!answer?.ok || turn !== newest) return;
      shown.innerHTML = await answer.text();
      showTimes();
    }, WAIT_MS);
  };
  field.addEventListener("input", ask);
  zone.addEventListener("input", ask);
}

// What a schedule means, below the fields that it is built of.
const preview = document.querySelector("[data-schedule-preview]");
if (preview) {
  const form = preview.closest("form");
  const fields = ["kind", "schedule", "every", "unit", "day", "time", "timezone"];
  let timer = 0;
  let newest = 0;
  const ask = async () => {
    const turn = ++newest;
    const given = new URLSearchParams([...new FormData(form)].filter(([name]) => fields.includes(name)));
    const answer = await fetch(`/triggers/preview?${given}`, { headers: { "nova-fragment": "preview" } }).catch(() => undefined);
    if (!answer?.ok || turn !== newest) return;
    preview.innerHTML = await answer.text();
    showTimes();
  };
  form.addEventListener("input", ({ target }) => {
    if (!fields.includes(target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  ask();
}
