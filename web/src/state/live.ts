/** Keeps the page's value up to date, while anybody can see the page. */

import * as client from "../api/client.ts";
import { hear } from "../api/events.ts";
import { heardEvent, lostEdge, refused, signedOut, tookApplications, tookCameras, tookSite } from "./page.ts";
import { parseRoute } from "./route.ts";

/** The edge looks at its cameras once a second. */
const LOOK_MS = 1_000;
/** What changes slowly is asked this seldom, unless the view is about it. */
const SITE_MS = 10_000;
/** Longest pause between attempts to reach an edge that does not answer. */
const RETRY_MS_MAX = 4_000;

/** Ends the pause between two looks, if there is one. */
let wake: () => void = () => {};

/** Sleeps, until `signal`. `woken` is given what ends it early. */
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

/** Asks in turn until `signal`; a pause after each answer, so that a slow edge is never asked twice at once. */
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
            // If the edge ends it for good, because it has as many readers as it takes, the next look tries again.
            stopEvents ??= hear(heardEvent, () => (stopEvents = null));
            failures = 0;
        } catch (error) {
            stopEvents?.();
            stopEvents = null;
            failures += 1;
            if (signal.aborted) return;
            // Whoever opens a new link in another tab is signed in here, too: this one goes on by itself.
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

/** Begins to look. A page that is not visible asks for nothing. */
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

/** Looks at once, for a view that has just been opened. */
export function lookNow(): void {
    wake();
}
