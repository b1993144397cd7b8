/** States in words, with their severity. Colours only repeat what the word and the sign say. */

import type { Contract, ContractState, EdgeEvent, Source } from "../api/types.ts";

/** Severity. `off`: neither good nor bad. */
export type Level = "good" | "warn" | "bad" | "off";

interface Meaning {
    level: Level;
    /** A few words, for badges. */
    word: string;
    /** The meaning, in a sentence. */
    means: string;
}

export const CONTRACT: Record<ContractState, Meaning> = {
    ok: { level: "good", word: "kept", means: "Frames are on time and accurate enough." },
    unverified: {
        level: "off",
        word: "accuracy unknown",
        means: "There is no profile, the profile lacks this rung, or no frame has come yet.",
    },
    drifted: {
        level: "warn",
        word: "differs from profile",
        means: "The camera’s frames differ from the frames of the profile, so its accuracies may not hold.",
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
        means: "No rung keeps both the latency bound and the accuracy floor.",
    },
    source_lost: { level: "bad", word: "no frames", means: "The camera is connected, but its source gives no frames." },
    absent: { level: "bad", word: "camera absent", means: "The camera is not connected." },
};

/** A subscription whose contract has no state. */
const ASKS_NOTHING: Meaning = { level: "off", word: "no bounds", means: "The application sets no bounds, or they are not judged yet." };

export const meaningOf = (state: Contract["state"]): Meaning => (state === null ? ASKS_NOTHING : CONTRACT[state]);

export const SOURCE: Record<Source["state"], Meaning> = {
    live: { level: "good", word: "gives frames", means: "The source gives frames." },
    stalled: { level: "warn", word: "stalled", means: "The source has given no frames for a while. The reason is unknown." },
    lost: { level: "bad", word: "lost", means: "The source is gone, or cannot be read." },
    ended: { level: "off", word: "ended", means: "The source ended normally." },
};

const ORDER: readonly Level[] = ["bad", "warn", "good", "off"];

/** The most severe level; `off` for an empty list. */
export function worst(levels: readonly Level[]): Level {
    return ORDER.find((level) => levels.includes(level)) ?? "off";
}

const SKIPPED: Record<string, string> = {
    link_busy: "link busy: replaced by a newer frame",
    stalled: "transfer cancelled: no progress, or too late",
    link_down: "no link",
    not_wanted: "no application was subscribed",
    late_or_lost: "arrived after a newer frame, or not at all",
    application_busy: "application busy: replaced by a newer frame",
    evicted: "evicted from the log before it was read",
    not_held: "neither edge nor camera has it",
    refused: "refused by the camera",
    not_made: "encoding failed or took too long",
    not_decoded: "decoding failed or took too long",
    edge_busy: "edge busy decoding",
    infeasible: "no rung keeps the contract, which accepts no worse frames",
    left_out: "left out by the rung (/skipN)",
    damaged: "damaged on disk",
};

/** A skip reason in words. For an unknown reason: the edge's name of the reason. */
export const skippedInWords = (reason: string): string => SKIPPED[reason] ?? reason.replaceAll("_", " ");

const HOLE: Record<string, string> = {
    gone: "the edge has no frames that old",
    camera_restarted: "the camera was restarted; the number of missing frames is unknown",
    not_published: "the camera published no frames",
    camera_absent: "the camera is not connected",
    link_down: "no link between camera and edge",
    not_wanted: "no application was subscribed",
};

/** The reason of a hole at the edge, in words. */
export const holeInWords = (reason: string): string => HOLE[reason] ?? skippedInWords(reason);

const CAMERA_HOLE: Record<string, string> = {
    gone: "it has no frames that old",
    camera_restarted: "it was restarted; the number of missing frames is unknown",
    not_published: "it published no frames",
    not_held: "the frames were not written to its disk",
    damaged: "the frames on its disk are damaged",
};

/** The reason of a hole at the camera, in words. */
export const cameraHoleInWords = (reason: string): string => CAMERA_HOLE[reason] ?? holeInWords(reason);

const SEVERITY: Record<EdgeEvent["severity"], Level> = { info: "off", warning: "warn", error: "bad" };

/** An event in a few words, with its severity. */
export function eventInWords(event: EdgeEvent): Meaning {
    const of = (level: Level, word: string): Meaning => ({ level, word, means: event.sentence });
    switch (event.kind) {
        case "contract": {
            const meaning = CONTRACT[event.state as ContractState];
            return of(meaning?.level ?? "off", `contract: ${meaning?.word ?? event.state}`);
        }
        case "camera":
            return of(event.state === "connected" ? "good" : event.state === "absent" ? "bad" : "off", `camera ${event.state}`);
        case "source": {
            const meaning = SOURCE[event.state as Source["state"]];
            return of(meaning?.level ?? "off", `source ${meaning?.word ?? event.state}`);
        }
        case "store":
            return of(event.state === "ok" ? "good" : "bad", event.state === "ok" ? "disk writes work again" : "disk writes fail");
        case "certificate":
            return of(
                event.state === "ok" ? "good" : event.state === "ended" ? "bad" : "warn",
                event.state === "ok" ? "certificate renewed" : event.state === "ended" ? "certificate expired" : "certificate expires soon",
            );
        case "group":
            return of(event.state === "ok" ? "good" : "warn", event.state === "ok" ? "group caught up" : "group behind");
        case "missed":
            return of("warn", event.state === "unknown" ? "earlier events unknown" : "events missed");
        default:
            // A kind of event that only a newer edge sends.
            return of(SEVERITY[event.severity], `${event.kind} ${event.state}`);
    }
}
