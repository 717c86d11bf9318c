import { EventSourceParserStream } from "eventsource-parser/stream";
import type { components } from "./api.js";
import { NovaError } from "./errors.js";
import { delayMs, isTemporary, sleep, type Transport } from "./transport.js";

/** What happens in a run, told apart by `type`. Ignore types that you do not know. */
export type RunEvent = components["schemas"]["RunEvent"];

/** An event, and the cursor to continue after it. */
export interface Followed {
  cursor: string;
  event: RunEvent;
}

/** How to follow a run. */
export interface FollowOptions {
  /** The cursor of the last event that you have. */
  after?: string;
  signal?: AbortSignal;
}

/** What changes in a tenant, told apart by `type`: `ready`, `change`, or `reset`, after which all is to be read again. */
export type ChangeEvent = components["schemas"]["ChangeEvent"];

/** An event of the stream of changes, and the cursor to continue after it. */
export interface FollowedChange {
  cursor: string;
  event: ChangeEvent;
}

/** What to follow: only changes of these subjects, such as `run`; without any, of all that the key may read. */
export interface ChangeOptions extends FollowOptions {
  subjects?: string[];
}

const NO_MORE_EVENTS = 204;

/** Yield the events of a response as they come. Throws a `NovaError` if its connection breaks. */
export async function* read<E = RunEvent>(
  response: Response,
  baseUrl: string,
): AsyncGenerator<{ cursor: string; event: E }> {
  if (!response.body) return;
  const frames = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  const reader = frames.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      if (value.id && value.data) yield { cursor: value.id, event: JSON.parse(value.data) as E };
    }
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new NovaError(`The stream of ${baseUrl} broke.`, "unavailable", 0, undefined, { cause });
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Whether nothing follows an event. */
export function isLast(event: RunEvent): boolean {
  return event.type === "stream_end" && event.final;
}

/** Yield the events of a run after a cursor, in order and each once, until the run ends. Reconnects by itself. */
export function follow(transport: Transport, runId: string, options: FollowOptions): AsyncGenerator<Followed> {
  return resume<RunEvent>(transport, `/v1/runs/${encodeURIComponent(runId)}/events`, runId, options, isLast);
}

/** Yield what changes, in order and each once. It ends by its `signal` only. Reconnects by itself. */
export function followChanges(transport: Transport, options: ChangeOptions): AsyncGenerator<FollowedChange> {
  const query = new URLSearchParams((options.subjects ?? []).map((subject) => ["subject", subject]));
  return resume<ChangeEvent>(transport, `/v1/events?${query}`, "changes", options, () => false);
}

async function* resume<E>(
  transport: Transport,
  path: string,
  of: string,
  options: FollowOptions,
  isOver: (event: E) => boolean,
): AsyncGenerator<{ cursor: string; event: E }> {
  let seen = options.after;
  for (let failures = 0; ; ) {
    let problem: unknown;
    try {
      const headers = { Accept: "text/event-stream", ...(seen ? { "Last-Event-ID": seen } : {}) };
      const request = new Request(`${transport.baseUrl}${path}`, { headers, signal: options.signal ?? null });
      const response = await transport.once(request);
      if (response.status === NO_MORE_EVENTS) return;
      for await (const followed of read<E>(response, transport.baseUrl)) {
        seen = followed.cursor;
        failures = 0;
        yield followed;
        if (isOver(followed.event)) return;
      }
    } catch (error) {
      if (!isTemporary(error)) throw error;
      problem = error;
    }
    failures += 1;
    if (failures > transport.retries) {
      const message = `The stream of ${of} was lost ${failures} times in a row, after ${seen ?? "no event"}.`;
      throw new NovaError(message, "unavailable", 0, undefined, { cause: problem });
    }
    await sleep(delayMs(failures), options.signal);
  }
}
