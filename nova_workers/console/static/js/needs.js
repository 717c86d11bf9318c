// What needs a person: its number in the page's title, and, for who asked for it, a notification of the browser.
const WANTED = "nova:notify";
const SHOWN = "nova:notified"; // The newest that some tab has seen: the others are silent. Ids grow with time.

const needs = { count: 0, title: document.title, isFirst: true };

export function startNeeds() {
  const button = document.querySelector("[data-notify]");
  if (!button || !("Notification" in window)) return;
  const show = () => button.setAttribute("aria-pressed", String(isWanted()));
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (isWanted()) localStorage.removeItem(WANTED);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(WANTED, "yes");
    show();
  });
  addEventListener("storage", show);
  show();
}

export function showTitle(title) {
  needs.title = title;
  document.title = needs.count ? `(${needs.count}) ${title}` : title;
}

// The numbers of the menu, as a page has them that was fetched since.
export function showCounts(page) {
  for (const theirs of page.querySelectorAll("[data-count-of]")) {
    const ours = document.querySelector(`[data-count-of="${theirs.dataset.countOf}"]`);
    ours?.replaceChildren(...theirs.childNodes);
    if (ours) ours.hidden = theirs.hidden;
  }
}

export function showNeeds({ count, newest }) {
  needs.count = count;
  const inbox = document.querySelector('[data-count-of="/inbox"]');
  if (inbox) { inbox.firstChild.data = count.toLocaleString("en"); inbox.hidden = !count; }
  showTitle(needs.title);
  const isNew = newest && newest.id > (localStorage.getItem(SHOWN) ?? "");
  if (isNew) localStorage.setItem(SHOWN, newest.id);
  // What was there when the page was opened, it shows.
  if (isNew && !needs.isFirst && isWanted()) notify(newest);
  needs.isFirst = false;
}

// One hidden tab goes on listening, where notifications are wanted: browsers allow 6 connections to a server.
export function listensHidden() {
  if (!isWanted() || !navigator.locks) return false;
  return new Promise((answer) => {
    navigator.locks.request("nova:notify", { ifAvailable: true }, (lock) => {
      answer(lock !== null);
      return lock && new Promise((release) => document.addEventListener("visibilitychange", release, { once: true }));
    });
  });
}

function isWanted() {
  return localStorage.getItem(WANTED) === "yes" && Notification.permission === "granted";
}

function notify({ id, title, text, href }) {
  const notification = new Notification(title, { body: text, tag: id });
  notification.onclick = () => {
    window.focus();
    location.assign(href);
  };
}
