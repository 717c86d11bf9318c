import { NovaError, errorOf, errorOfConnection } from "./errors.js";

/** What a client is made of. */
export interface NovaOptions {
  /** The API, such as `http://127.0.0.1:8765`. */
  baseUrl: string;
  /** An API key. In a page, give one that its reader may have: they can read it. */
  apiKey?: string;
  /** In place of the platform's `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Failures in a row before a request or a stream is given up; 15 last about 40 s. */
  retries?: number;
}

const KEY = "Idempotency-Key";
const ATTEMPTS = 3;
const BASE_MS = 100;
const LONGEST_MS = 5_000;

/** Sends requests with the key, and again where that does nothing twice. */
export class Transport {
  readonly baseUrl: string;
  readonly retries: number;
  private readonly apiKey: string | undefined;
  private readonly send: typeof globalThis.fetch;

  constructor(options: NovaOptions) {
    this.baseUrl = options.baseUrl.replace(/\/+$/, "");
    this.apiKey = options.apiKey;
    this.send = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.retries = options.retries ?? 15;
  }

  /** Send a request that may be repeated: one that reads, or has an idempotency key. Throws a `NovaError`. */
  readonly fetch = async (request: Request): Promise<Response> => {
    const isRepeatable = request.method === "GET" || request.headers.has(KEY);
    for (let failures = 1; ; failures += 1) {
      try {
        return await this.once(request.clone());
      } catch (error) {
        const isLast = failures >= Math.min(ATTEMPTS, this.retries);
        if (!isRepeatable || isLast || !isTemporary(error)) throw error;
        await sleep(delayMs(failures), request.signal);
      }
    }
  };

  /** Send a request once, with the key. Throws a `NovaError`. */
  async once(request: Request): Promise<Response> {
    if (this.apiKey) request.headers.set("Authorization", `Bearer ${this.apiKey}`);
    let response: Response;
    try {
      response = await this.send(request);
    } catch (cause) {
      if (request.signal.aborted) throw cause;
      throw errorOfConnection(this.baseUrl, cause);
    }
    if (response.status >= 400) throw await errorOf(response);
    return response;
  }
}

/** Return whether the same request may succeed later. */
export function isTemporary(error: unknown): boolean {
  return error instanceof NovaError && error.isTemporary;
}

/** Return how long to wait after a number of failures in a row: twice as long each time, with jitter. */
export function delayMs(failures: number): number {
  const ceiling = Math.min(LONGEST_MS, BASE_MS * 2 ** Math.min(failures - 1, 30));
  return ceiling / 2 + (Math.random() * ceiling) / 2;
}

/** Wait. Throws the signal's reason if it is aborted meanwhile. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Return the header that names a request, so that its repetition does nothing twice. */
export function idempotency(key?: string): Record<string, string> {
  return { [KEY]: key ?? crypto.randomUUID() };
}
