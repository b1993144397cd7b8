/** Sentences that explain the current quality of a camera's pictures. */

import type { Camera, Contract } from "../api/types.ts";
import { rungInWords } from "./rung.ts";
import { meaningOf, SOURCE, type Level } from "./states.ts";
import * as units from "./units.ts";

export interface Sentence {
    level: Level;
    text: string;
}

const say = (text: string, level: Level = "off"): Sentence => ({ level, text });

/** The reasons, the most important first. Never empty. */
export function whyNow(camera: Camera): Sentence[] {
    if (!camera.connected) return [say(absence(camera), "bad")];
    return [...source(camera), ...contracts(camera), ...demand(camera), ...quality(camera), ...link(camera)];
}

function absence(camera: Camera): string {
    if (camera.derived_from.length > 0) return "No application publishes this stream now.";
    const last = camera.newest ? ` Its newest frame is ${units.milliseconds(camera.newest.age_ms ?? NaN)} old.` : "";
    return `The camera is not connected: it is off, or the network between it and the edge is down.${camera.newest?.age_ms ? last : ""}`;
}

function source(camera: Camera): Sentence[] {
    const { source } = camera;
    if (!source || source.state === "live") return [];
    const { level, word } = SOURCE[source.state];
    const why = source.reason ? `: ${source.reason}` : "";
    const since = source.lasts_ms === null ? "" : ` (for ${units.milliseconds(source.lasts_ms)})`;
    const retry = source.retry_ms === null ? "" : ` Next attempt in ${units.milliseconds(source.retry_ms)}.`;
    return [say(`The source is ${word}${since}${why}.${retry}`, level)];
}

const named = (contracts: readonly Contract[]): string =>
    [...new Set(contracts.map((one) => one.application || "an application"))].join(", ");

function demand(camera: Camera): Sentence[] {
    if (camera.contracts.length === 0) {
        return [say("No application subscribes to this camera. Frames stay in its log; only small pictures for this page cross the link.")];
    }
    const floors = camera.contracts.filter((one) => one.accuracy_floor !== null);
    if (floors.length === 0) {
        return [say(`None of the applications (${named(camera.contracts)}) sets an accuracy floor, so frames are sent as published.`)];
    }
    return [];
}

function quality(camera: Camera): Sentence[] {
    const { newest } = camera;
    if (!newest) return [say("The edge has no frame yet.")];
    if (newest.width === 0)
        return [
            say(`Newest record: ${units.bytes(newest.bytes)}, ${newest.rung === "original" ? "as published" : `rung ${newest.rung}`}.`),
        ];
    const what = newest.rung === "original" ? "as published" : `as ${rungInWords(newest.rung)}`;
    const sentences = [say(`The newest frame arrived ${what}: ${newest.width} × ${newest.height} pixels, ${units.bytes(newest.bytes)}.`)];
    const floors = camera.contracts.flatMap((one) => (one.accuracy_floor === null ? [] : [one.accuracy_floor]));
    if (floors.length === 0 || newest.rung === "original") return sentences;
    const floor = Math.max(...floors);
    const expected = newest.accuracy;
    if (expected === null) return [...sentences, say("The accuracy is unknown: there is no profile, or it lacks this rung.", "warn")];
    const below = expected < floor;
    const text = `The frame’s expected accuracy (agreement of detections with the original) is ${units.accuracy(expected)}, ${below ? "below" : "which keeps"} the floor of ${units.accuracy(floor)}.`;
    return [...sentences, say(text, below ? "bad" : "good")];
}

function link(camera: Camera): Sentence[] {
    const { link_bits_per_second: carries, published_bits_per_second: published } = camera;
    if (carries === null || published === null || published === 0) return [];
    const rates = `The link carries about ${units.bitRate(carries)}, and the camera publishes ${units.bitRate(published)}`;
    const adapted = camera.newest !== null && camera.newest.rung !== "original";
    const shared = camera.channel ? sharedChannel(camera.channel, camera.share_frame_bytes) : "";
    if (published > carries) return [say(`${rates}: originals do not fit.${shared}`, adapted ? "off" : "warn")];
    return [say(`${rates}.${shared}`)];
}

function sharedChannel(channel: string, shareBytes: number | null): string {
    const share =
        shareBytes === null
            ? ""
            : shareBytes === 0
              ? ", which has no room for frames at its accuracy floor"
              : `; its share is ${units.bytes(shareBytes)} per frame`;
    return ` The camera shares the channel “${channel}” with other cameras${share}.`;
}

function contracts(camera: Camera): Sentence[] {
    return camera.contracts
        .filter((one) => one.state !== null && one.state !== "ok")
        .map((one) => {
            const { level, word, means } = meaningOf(one.state);
            return say(`${one.application || "An application"}: ${word}. ${one.reason ? capital(one.reason) : means}`, level);
        });
}

function capital(text: string): string {
    const sentence = text.charAt(0).toUpperCase() + text.slice(1);
    return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}
