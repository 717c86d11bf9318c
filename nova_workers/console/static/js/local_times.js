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
