/** States in words, and how serious they are. Colour repeats what a word and a sign say. */

import type { Contract, ContractState, EdgeEvent, Source } from "../api/types.ts";

/** How serious something is. `off`: nothing is there that could be good or bad. */
export type Level = "good" | "warn" | "bad" | "off";

interface Meaning {
    level: Level;
    /** A few words, for badges. */
    word: string;
    /** What it means, in a sentence. */
    means: string;
}

export const CONTRACT: Record<ContractState, Meaning> = {
    ok: { level: "good", word: "kept", means: "Frames are in time and accurate enough." },
    unverified: {
        level: "off",
        word: "accuracy unknown",
        means: "No profile says what this encoding means for the detector, or no frame has come yet.",
    },
    drifted: {
        level: "warn",
        word: "unlike its profile",
        means: "Frames differ from those of the profile, so its accuracies may not hold.",
    },
    application_late: {
        level: "warn",
        word: "application too slow",
        means: "Frames arrive in time, but the application takes too few of them in time.",
    },
    accuracy_miss: {
        level: "bad",
        word: "not accurate enough",
        means: "The accuracy that the application measured is below its floor.",
    },
    latency_miss: { level: "bad", word: "too late", means: "Too few frames arrive in time, or too few per second." },
    infeasible: {
        level: "bad",
        word: "cannot be kept",
        means: "No encoding is both small enough to be in time and accurate enough.",
    },
    source_lost: { level: "bad", word: "no frames", means: "The camera is connected, but its source gives no frames." },
    absent: { level: "bad", word: "camera absent", means: "The camera is not connected." },
};

/** What a subscription without a state asks for. */
const ASKS_NOTHING: Meaning = { level: "off", word: "no bounds", means: "The application asks for frames, and sets no bounds." };

export const meaningOf = (state: Contract["state"]): Meaning => (state === null ? ASKS_NOTHING : CONTRACT[state]);

export const SOURCE: Record<Source["state"], Meaning> = {
    live: { level: "good", word: "gives frames", means: "The source gives frames." },
    stalled: { level: "warn", word: "stalled", means: "The source has given no frame for a while, and nobody knows why." },
    lost: { level: "bad", word: "lost", means: "The source is gone, or cannot be read." },
    ended: { level: "off", word: "ended", means: "The source ended in good order." },
};

const ORDER: readonly Level[] = ["bad", "warn", "good", "off"];

/** The most serious of several; `off` for none. */
export function worst(levels: readonly Level[]): Level {
    return ORDER.find((level) => levels.includes(level)) ?? "off";
}

const SKIPPED: Record<string, string> = {
    link_busy: "link busy: a newer frame came first",
    stalled: "cancelled on its way: no progress",
    link_down: "no link",
    not_wanted: "nobody wanted it",
    late_or_lost: "arrived after a newer frame, or not at all",
    application_busy: "application busy: a newer frame came first",
    evicted: "dropped from memory before it was read",
    not_held: "nobody holds it any more",
    refused: "refused by the camera",
    not_made: "could not be encoded in time",
    not_decoded: "could not be decoded in time",
    edge_busy: "edge busy decoding",
    infeasible: "no encoding keeps the contract, which refuses less",
    left_out: "left out by its encoding",
    damaged: "damaged on disk",
};

/** Why frames were skipped, in words. A reason that this page does not know is told as the edge names it. */
export const skippedInWords = (reason: string): string => SKIPPED[reason] ?? reason.replaceAll("_", " ");

const HOLE: Record<string, string> = {
    gone: "the edge holds nothing so old",
    camera_restarted: "the camera was restarted; nobody knows how many frames there were",
    not_published: "the camera published nothing",
    camera_absent: "the camera is not connected",
    link_down: "no link between camera and edge",
    not_wanted: "nobody asked for frames",
};

/** Why nothing is held of a stretch of time, in words. */
export const holeInWords = (reason: string): string => HOLE[reason] ?? skippedInWords(reason);

const CAMERA_HOLE: Record<string, string> = {
    gone: "it holds nothing so old",
    camera_restarted: "it was restarted; nobody knows how many frames there were",
    not_published: "it published nothing",
    not_held: "frames were not written to its disk",
    damaged: "frames on its disk are damaged",
};

/** Why the camera itself holds nothing of a stretch of time, in words. */
export const cameraHoleInWords = (reason: string): string => CAMERA_HOLE[reason] ?? holeInWords(reason);

const SEVERITY: Record<EdgeEvent["severity"], Level> = { info: "off", warning: "warn", error: "bad" };

/** What happened, in a few words, and how serious it is. */
export function eventInWords(event: EdgeEvent): Meaning {
    const of = (level: Level, word: string): Meaning => ({ level, word, means: event.sentence });
    switch (event.kind) {
        case "contract": {
            const meaning = CONTRACT[event.state as ContractState];
            return of(meaning?.level ?? "off", `contract ${meaning?.word ?? event.state}`);
        }
        case "camera":
            return of(event.state === "connected" ? "good" : event.state === "absent" ? "bad" : "off", `camera ${event.state}`);
        case "source": {
            const meaning = SOURCE[event.state as Source["state"]];
            return of(meaning?.level ?? "off", `source ${meaning?.word ?? event.state}`);
        }
        case "store":
            return of(event.state === "ok" ? "good" : "bad", event.state === "ok" ? "disk written again" : "disk not written");
        case "certificate":
            return of(
                event.state === "ok" ? "good" : event.state === "ended" ? "bad" : "warn",
                event.state === "ok" ? "certificate renewed" : event.state === "ended" ? "certificate ended" : "certificate ends soon",
            );
        case "group":
            return of(event.state === "ok" ? "good" : "warn", event.state === "ok" ? "group caught up" : "group behind");
        case "missed":
            return of("warn", event.state === "unknown" ? "earlier events unknown" : "events missed");
        default:
            // Of a later edge.
            return of(SEVERITY[event.severity], `${event.kind} ${event.state}`);
    }
}
