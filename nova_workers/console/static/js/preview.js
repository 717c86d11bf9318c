// Markdown beside the field that it is written in, rendered by the console as pages render it.

const WAIT_MS = 250;

for (const preview of document.querySelectorAll("[data-preview-of]")) {
  const field = document.getElementById(preview.dataset.previewOf);
  let timer = 0;
  let newest = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const turn = ++newest;
      const body = new URLSearchParams({ content: field.value });
      const answer = await fetch(preview.dataset.previewFrom, { method: "POST", body, headers: { "nova-fragment": "preview" } });
      // An answer that was overtaken by a later one is dropped.
      if (answer.ok && turn === newest) preview.innerHTML = await answer.text();
    }, WAIT_MS);
  });
}
