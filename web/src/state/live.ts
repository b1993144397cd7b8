/** Updates the page's state while the page is visible. */

import * as client from "../api/client.ts";
import { hear } from "../api/events.ts";
import { heardEvent, lostEdge, refused, signedOut, tookApplications, tookCameras, tookSite } from "./page.ts";
import { parseRoute } from "./route.ts";

/** The edge takes a snapshot of its state once a second. */
const LOOK_MS = 1_000;
/** Interval between requests for the site's data, unless the site view is open: these data change slowly. */
const SITE_MS = 10_000;
/** Longest pause between attempts to reach an edge that does not answer. */
const RETRY_MS_MAX = 4_000;

/** Ends the current pause of `look`, if there is one. */
let wake: () => void = () => {};

/** Sleeps for this time, or until `signal` is aborted. Passes a function to `woken` that ends the sleep early. */
const sleep = (milliseconds: number, signal: AbortSignal, woken: (over: () => void) => void = () => {}): Promise<void> =>
    new Promise((resolve) => {
        const over = (): void => {
            clearTimeout(timer);
            signal.removeEventListener("abort", over);
            resolve();
        };
        const timer = setTimeout(over, milliseconds);
        signal.addEventListener("abort", over);
        woken(over);
    });

/** Polls the edge until `signal` is aborted. Each pause begins after the answers, so requests to a slow edge never overlap. */
async function look(signal: AbortSignal): Promise<void> {
    let stopEvents: (() => void) | null = null;
    signal.addEventListener("abort", () => stopEvents?.());
    let siteMs = -Infinity;
    let failures = 0;
    while (!signal.aborted) {
        try {
            const answer = await client.cameras();
            if (signal.aborted) return;
            const { view } = parseRoute(location.hash);
            tookCameras(answer, Date.now());
            if (view === "applications") tookApplications(await client.applications());
            if (view === "site" || failures > 0 || performance.now() - siteMs > SITE_MS) {
                tookSite(await client.site());
                siteMs = performance.now();
            }
            // If the edge refuses the stream because it has too many readers, the next round tries again.
            stopEvents ??= hear(heardEvent, () => (stopEvents = null));
            failures = 0;
        } catch (error) {
            stopEvents?.();
            stopEvents = null;
            failures += 1;
            if (signal.aborted) return;
            // Polling continues after a 401, too: a new link in another tab of this browser also signs this page in.
            const status = error instanceof client.RefusedError ? error.status : null;
            const detail = error instanceof Error ? error.message : String(error);
            if (status === 401) signedOut(detail);
            else if (status === 403) refused(detail);
            else lostEdge(Date.now());
        }
        await sleep(failures === 0 ? LOOK_MS : Math.min(RETRY_MS_MAX, LOOK_MS * failures), signal, (over) => (wake = over));
    }
}

let running: AbortController | null = null;

function start(): void {
    running?.abort();
    running = new AbortController();
    void look(running.signal);
}

/** Starts polling. A hidden page sends no requests. */
export function goLive(): void {
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            running?.abort();
            running = null;
        } else {
            start();
        }
    });
    if (!document.hidden) start();
}

/** Polls at once, for a view that has just been opened. */
export function lookNow(): void {
    wake();
}
