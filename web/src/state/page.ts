/** The state of the page, as one value. Views read the value; only the functions here change it. */

import type { Applications, Cameras, EdgeEvent, Site } from "../api/types.ts";
import { Histories } from "./histories.ts";
import { createStore } from "./store.ts";

/** Maximum number of events that the page keeps. */
const EVENTS_MAX = 500;

/** Whether the edge answers. */
export type Connection =
    | { is: "connecting" }
    | { is: "live" }
    /** The edge does not answer. `sinceMs`: since when, in milliseconds by the browser's clock. */
    | { is: "lost"; sinceMs: number }
    /** The identity may see nothing. `detail`: why, in the edge's words. */
    | { is: "refused"; detail: string }
    /** The page needs a new session. `detail`: why, and how to get one. */
    | { is: "signed_out"; detail: string };

export interface Page {
    connection: Connection;
    /** When the page noticed a restart of the edge, in milliseconds by the browser's clock. `null`: none since the page was opened. */
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

/** Changes together with `cameras`. Not part of the value, because copying it every second would cost more than everything else. */
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
        // A new stream repeats the newest events.
        if (value.events.some((one) => one.id === event.id)) return value;
        return { ...value, events: [event, ...value.events].slice(0, EVENTS_MAX) };
    });
}

export function lostEdge(nowMs: number): void {
    page.update((value) => {
        // After the end of a session the page keeps showing how to sign in, even if the edge is away.
        if (value.connection.is === "lost" || value.connection.is === "signed_out") return value;
        return { ...value, connection: { is: "lost", sinceMs: nowMs } };
    });
}

/** Discards all data, because the identity may not see it any more. */
export function refused(detail: string): void {
    page.update((value) => {
        if (value.connection.is === "refused" && value.connection.detail === detail) return value;
        return { ...NOTHING, connection: { is: "refused", detail } };
    });
}

/** Discards all data, because only signed-in users may see it. */
export function signedOut(detail: string): void {
    page.update((value) => {
        // Keep the first reason.
        if (value.connection.is === "signed_out") return value;
        return { ...NOTHING, connection: { is: "signed_out", detail } };
    });
}
