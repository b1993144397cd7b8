/** All that is on the screen, in one place. Views read it; `live.ts` and the functions here change it. */

import type { Applications, Cameras, EdgeEvent, Site } from "../api/types.ts";
import { Histories } from "./histories.ts";
import { createStore } from "./store.ts";

/** Events that are kept. */
const EVENTS_MAX = 500;

/** Whether the edge answers. */
export type Connection =
    | { is: "connecting" }
    | { is: "live" }
    /** It does not, since then (milliseconds of the browser's clock). */
    | { is: "lost"; sinceMs: number }
    /** It answers, and this identity may see nothing; it says what is missing. */
    | { is: "refused"; detail: string }
    /** It wants a new session, and says how to get one. */
    | { is: "signed_out"; detail: string };

export interface Page {
    connection: Connection;
    /** When the edge was found to be restarted, in milliseconds of the browser's clock. `null`: not while this page was open. */
    restartedMs: number | null;
    site: Site | null;
    cameras: Cameras | null;
    applications: Applications | null;
    /** Newest first. */
    events: readonly EdgeEvent[];
}

const NOTHING: Page = {
    connection: { is: "connecting" },
    restartedMs: null,
    site: null,
    cameras: null,
    applications: null,
    events: [],
};

export const page = createStore<Page>(NOTHING);

/** Changed whenever `cameras` is. Not part of the value, because copying it each second would cost more than all the rest. */
export const histories = new Histories();

export function tookCameras(cameras: Cameras, nowMs: number): void {
    histories.add(cameras);
    page.update((value) => {
        const start = value.cameras?.edge_start;
        const restarted = start !== undefined && start !== cameras.edge_start;
        return { ...value, cameras, connection: { is: "live" }, restartedMs: restarted ? nowMs : value.restartedMs };
    });
}

export function tookSite(site: Site): void {
    page.update((value) => ({ ...value, site }));
}

export function tookApplications(applications: Applications): void {
    page.update((value) => ({ ...value, applications }));
}

export function heardEvent(event: EdgeEvent): void {
    page.update((value) => {
        // A stream that begins anew tells again what is known.
        if (value.events.some((one) => one.id === event.id)) return value;
        return { ...value, events: [event, ...value.events].slice(0, EVENTS_MAX) };
    });
}

export function lostEdge(nowMs: number): void {
    page.update((value) => {
        // Whoever is signed out sees how to sign in, whether the edge answers or not.
        if (value.connection.is === "lost" || value.connection.is === "signed_out") return value;
        return { ...value, connection: { is: "lost", sinceMs: nowMs } };
    });
}

/** Forgets what this identity may see no longer. */
export function refused(detail: string): void {
    page.update((value) => {
        if (value.connection.is === "refused" && value.connection.detail === detail) return value;
        return { ...NOTHING, connection: { is: "refused", detail } };
    });
}

/** Forgets everything that only somebody who is signed in may see. */
export function signedOut(detail: string): void {
    page.update((value) => {
        // The first reason stands.
        if (value.connection.is === "signed_out") return value;
        return { ...NOTHING, connection: { is: "signed_out", detail } };
    });
}
