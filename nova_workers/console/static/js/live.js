// What is live of a page: it is fetched again, whole, when its stream (`data-stream` of <main>) says so, or each so many
// seconds (`data-refresh`); streams of changes to single elements; and a page that waits for the API (`data-retry`).
import { morph, morphChildren } from "./morph.js";
import { listensHidden, showCounts, showNeeds, showTitle } from "./needs.js";
import { showTimes } from "./parts.js";
import { takePermit } from "./permits.js";

const HIDDEN_MS = 20_000; // A hidden page closes its streams after this: browsers allow 6 connections to a server.
const WITHOUT_PERMIT_MS = 5_000; // What has no stream, since other pages have them all, is fetched this often.
const LONGEST_PAUSE_MS = 15_000;
const FLASH_MS = 6_000;
const REFUSED = new Set([400, 404, 410, 422]);

export function startLive() {
  startRenewal();
  retryPage();
  const streams = new Map();
  const away = document.getElementById("away");
  const openStreams = () => {
    for (const element of document.querySelectorAll("[data-stream]")) {
      if (streams.get(element)?.done ?? true) streams.set(element, new Stream(element));
    }
    for (const [element, stream] of streams) {
      if (!element.isConnected) { stream.end(); streams.delete(element); }
    }
    // Each stream says whether the fleet answers; a page that has none gets one for that, and for what needs a person.
    if (away && [...streams.values()].every((stream) => stream.done)) streams.set(away, new Stream(away));
  };
  openStreams();
  // A changed part of the page may have a stream of its own.
  document.addEventListener("nova:changed", openStreams);
  document.addEventListener("visibilitychange", () => streams.forEach((stream) => stream.onVisibility()));
}

export function apply(changes) {
  for (const [action, id, html] of changes) {
    if (action === "renew") renew();
    // Of a page that shows many things: what an action reported of one is not over yet.
    if (action === "refresh") refresh();
    if (action === "needs") showNeeds(JSON.parse(html));
    if (action === "title") showTitle(html);
    const target = document.getElementById(id);
    if (!target) continue;
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    const content = parsed.content;
    if (action === "remove") target.remove();
    else if (action === "show" || action === "hide") target.hidden = action === "hide";
    else if (action === "inner") morphChildren(target, content);
    else if (action === "replace" && content.firstElementChild) morph(target, content.firstElementChild);
    else if (action === "append" || action === "prepend") {
      const known = content.firstElementChild?.id && document.getElementById(content.firstElementChild.id);
      if (known) morph(known, content.firstElementChild);
      else target[action](content);
    }
  }
  showTimes();
  document.dispatchEvent(new CustomEvent("nova:changed"));
}

class Stream {
  constructor(element) {
    this.element = element;
    this.after = element.dataset.after ?? "";
    this.failures = 0;
    this.done = false;
    // A page that changed something wants to see it now; so does one whose connection is back.
    element.addEventListener("nova:reopen", () => this.reopen());
    addEventListener("online", () => this.reopen());
    addEventListener("focus", () => this.open());
    this.open();
  }

  get isIdle() {
    return this.done || (document.hidden && !this.listens);
  }

  reopen() {
    this.close();
    this.open();
  }

  async open() {
    clearTimeout(this.timer);
    if (this.isIdle || this.source || this.isOpening) return;
    this.isOpening = true;
    this.release = await takePermit(() => this.onPermitLost());
    this.isOpening = false;
    if (this.isIdle) this.close();
    else if (this.release) this.connect();
    else this.fetchLater();
  }

  connect() {
    const url = new URL(this.element.dataset.stream ?? "/changes", location.href);
    if (this.after) url.searchParams.set("after", this.after);
    this.source = new EventSource(url);
    this.openedAt = Date.now();
    // If the fleet is away, a stream begins with that.
    this.source.onopen = () => showOutage({ status: 200 });
    this.source.onmessage = (event) => {
      this.failures = 0;
      if (event.lastEventId) this.after = event.lastEventId;
      apply(JSON.parse(event.data));
    };
    this.source.addEventListener("done", () => {
      this.end();
      document.dispatchEvent(new CustomEvent("nova:changed"));
    });
    this.source.onerror = () => this.onBreak();
  }

  end() {
    this.done = true;
    // A page that was fetched since may have another one.
    delete this.element.dataset.stream;
    clearTimeout(this.timer);
    clearTimeout(this.hiding);
    this.close();
  }

  close() {
    this.source?.close();
    this.source = undefined;
    this.release?.();
    this.release = undefined;
  }

  onPermitLost() {
    this.close();
    this.fetchLater();
  }

  fetchLater() {
    this.timer = setTimeout(() => {
      if (this.element.id === "main") refresh();
      this.open();
    }, WITHOUT_PERMIT_MS);
  }

  async onBreak() {
    this.close();
    // A stream that ends as soon as it was opened is one that the API refuses.
    if (Date.now() - this.openedAt > LONGEST_PAUSE_MS) this.failures = 0;
    this.failures += 1;
    const pause = Math.min(LONGEST_PAUSE_MS, 500 * 2 ** this.failures) * (0.5 + Math.random() / 2);
    if (this.failures > 1) showOutage(await fetchPage("check"));
    this.timer = setTimeout(() => this.open(), pause);
  }

  onVisibility() {
    clearTimeout(this.hiding);
    this.listens = document.hidden && this.source !== undefined;
    if (document.hidden) this.hiding = setTimeout(() => this.onHidden(), HIDDEN_MS);
    else this.open();
  }

  async onHidden() {
    // What has no address of its own says what needs a person, as pages do that show many things.
    const isOfChanges = (this.element.dataset.stream ?? "/changes").startsWith("/changes");
    if (isOfChanges && (await listensHidden())) return;
    this.listens = false;
    clearTimeout(this.timer);
    this.close();
  }
}

// A page that is live is fetched again: each `data-refresh` seconds of <main>, or when its stream says so.
const renewal = { timer: 0, failures: 0, isUnderWay: false, isStale: false, isDue: false };

function startRenewal() {
  const main = document.getElementById("main");
  const soon = () => document.hidden || !(main.dataset.refresh || renewal.isDue) || renew(true);
  planRenewal(main);
  document.addEventListener("visibilitychange", soon);
  addEventListener("online", soon);
}

function planRenewal(main) {
  clearTimeout(renewal.timer);
  // What a stream asked for is tried again until it came.
  const seconds = Number(main.dataset.refresh) || (renewal.failures ? 1 : 0);
  const pause = Math.min(LONGEST_PAUSE_MS, seconds * 1000 * 2 ** Math.min(renewal.failures, 4));
  if (pause) renewal.timer = setTimeout(() => document.hidden || renew(true), pause);
}

function refresh() {
  renewal.isDue = document.hidden;
  if (!document.hidden) renew(true);
}

async function renew(byClock = false) {
  if (renewal.isUnderWay) { renewal.isStale = true; return; }
  const main = document.getElementById("main");
  renewal.isUnderWay = true;
  renewal.isDue = false;
  do {
    renewal.isStale = false;
    clearTimeout(renewal.timer);
    const response = await fetchPage("refresh");
    // Its page says that it was deleted, or which filter is wrong.
    if (REFUSED.has(response?.status)) return location.reload();
    renewal.failures = response?.ok ? 0 : renewal.failures + 1;
    if (response?.ok) showPage(main, new DOMParser().parseFromString(await response.text(), "text/html"), byClock);
    if (renewal.failures !== 1) showOutage(response);
  } while (renewal.isStale);
  renewal.isUnderWay = false;
  planRenewal(main);
}

function showPage(main, page, byClock) {
  const theirs = page.getElementById("main");
  // What an action reported is true until the page changes, and stays long enough to be read while time passes.
  const flash = document.getElementById("flash");
  if (flash && byClock && performance.now() < FLASH_MS) page.getElementById("away").after(flash.cloneNode(true));
  showTitle(page.title);
  showCounts(page);
  morph(main, theirs, true);
  showTimes();
  document.dispatchEvent(new CustomEvent("nova:changed"));
}

function retryPage() {
  const waiting = document.querySelector("[data-retry]");
  if (!waiting) return;
  setInterval(async () => {
    const response = await fetchPage("retry");
    if (response && response.status !== 503) location.reload();
  }, Number(waiting.dataset.retry) * 1000);
}

// Asks for the page itself, since that also shows whether the session has ended. Undefined: the console does not answer.
async function fetchPage(why) {
  const response = await fetch(location.href, { headers: { "Nova-Fragment": why } }).catch(() => undefined);
  if (response?.status === 401) location.reload();
  return response;
}

// The console's own failures are no outage: the next try may succeed, and its page would show them.
function showOutage(response) {
  document.getElementById("offline").hidden = response !== undefined;
  const away = document.getElementById("away");
  if (away && response) away.hidden = response.status !== 503;
}
