/** Timelines of all cameras. Each answer of the edge adds a sample. Counters become their increase since the previous answer. */

import type { Camera, Cameras, Contract } from "../api/types.ts";
import { Timeline } from "./timeline.ts";

/** Maximum number of cameras with timelines. */
const CAMERAS_MAX = 512;

/** Maximum number of rungs per camera. Beyond this number, the last place in `History.rungs` stands for all other rungs. */
const RUNGS_MAX = 32;

export interface History {
    readonly timeline: Timeline;
    /** Names of the camera's rungs, in the order of their first appearance. The column `rung` of the timeline has places in this list. */
    readonly rungs: string[];
}

/** The name of a contract's column in a timeline. */
export const contractColumn = (subscription: number, what: string): string => `${subscription}:${what}`;

export class Histories {
    #histories = new Map<string, History>();
    #before: Cameras | null = null;

    of(camera: string): History | undefined {
        return this.#histories.get(camera);
    }

    add(answer: Cameras): void {
        // The same snapshot of the edge, received twice.
        if (this.#before?.now_utc_ms === answer.now_utc_ms) return;
        // A restart of the edge resets its counters and renumbers the subscriptions.
        const before = this.#before?.edge_start === answer.edge_start ? this.#before : null;
        const earlier = new Map(before?.cameras.map((camera) => [camera.name, camera]));
        const histories = new Map<string, History>();
        for (const camera of answer.cameras.slice(0, CAMERAS_MAX)) {
            const history = this.#histories.get(camera.name) ?? { timeline: new Timeline(), rungs: [] };
            history.timeline.add(answer.now_utc_ms / 1000, sample(camera, earlier.get(camera.name), history.rungs));
            histories.set(camera.name, history);
        }
        this.#histories = histories;
        this.#before = answer;
    }
}

function sample(camera: Camera, before: Camera | undefined, rungs: string[]): Map<string, number | null> {
    const values = new Map<string, number | null>([
        ["link", camera.link_bits_per_second],
        ["crossed", camera.crossed_bits_per_second],
        ["published", camera.published_bits_per_second],
    ]);
    // Only a new frame shows the current rung.
    if (camera.newest && (camera.newest.epoch !== before?.newest?.epoch || camera.newest.sequence !== before.newest.sequence)) {
        values.set("rung", placeOf(camera.newest.rung, rungs));
    }
    for (const contract of camera.contracts) {
        const earlier = before?.contracts.find((one) => one.subscription === contract.subscription);
        addContract(values, contract, earlier);
    }
    return values;
}

function placeOf(rung: string, rungs: string[]): number {
    const place = rungs.indexOf(rung);
    if (place >= 0) return place;
    if (rungs.length < RUNGS_MAX) rungs.push(rung);
    return rungs.length - 1;
}

function addContract(values: Map<string, number | null>, contract: Contract, before: Contract | undefined): void {
    const put = (what: string, value: number | null): void => {
        values.set(contractColumn(contract.subscription, what), value);
    };
    put("p50", contract.latency_p50_ms);
    put("p95", contract.latency_p95_ms);
    put("bound", contract.latency_bound_ms);
    put("accuracy", contract.accuracy);
    put("floor", contract.accuracy_floor);
    if (!before) return;
    for (const [reason, count] of Object.entries(contract.skipped)) {
        put(`skip:${reason}`, Math.max(0, count - (before.skipped[reason] ?? 0)));
    }
}
