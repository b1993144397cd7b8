/** Unit tests of what the page computes from the edge's answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { framesIn } from "../src/api/client.ts";
import type { Camera, Cameras, Contract, Held, Note } from "../src/api/types.ts";
import { codecOf } from "../src/parts/player.ts";
import { contractColumn, Histories } from "../src/state/histories.ts";
import { allNotes, atCamera, holeAt, isAtCamera, piece, playedFrom, repliesOn, spanAt, unsurveyed } from "../src/state/past.ts";
import { cameraHref, historyHref, parseRoute, tokenIn } from "../src/state/route.ts";
import { SAMPLES_MAX, Timeline } from "../src/state/timeline.ts";
import { standing } from "../src/words/held.ts";
import { readable } from "../src/words/record.ts";
import { byFineness, rungInWords } from "../src/words/rung.ts";
import { snippets } from "../src/words/snippets.ts";
import * as units from "../src/words/units.ts";
import { whyNow } from "../src/words/why.ts";

const contract = (more: Partial<Contract> = {}): Contract => ({
    subscription: 7,
    application: "counter",
    group: null,
    state: "ok",
    reason: "",
    since_utc_ms: null,
    latency_bound_ms: 100,
    latency_p50_ms: 30,
    latency_p95_ms: 60,
    latency_at: "application",
    on_time_share: 1,
    on_time_share_wanted: 0.98,
    accuracy_floor: 0.95,
    accuracy: 0.97,
    min_fps: 0,
    priority: 0,
    on_infeasible: "degrade",
    frames_per_second: 15,
    delivered: 100,
    skipped: {},
    ...more,
});

const camera = (more: Partial<Camera> = {}): Camera => ({
    name: "dock/cam1",
    derived_from: [],
    publishers: null,
    connected: true,
    identity: "spiffe://site/camera/dock/cam1",
    source: { state: "live", reason: "", lasts_ms: null, retry_ms: null },
    width: 768,
    height: 576,
    frames_per_second: 15,
    received_frames_per_second: 15,
    newest: null,
    published_bits_per_second: null,
    crossed_bits_per_second: null,
    link_bits_per_second: null,
    round_trip_ms: null,
    clock_error_ms: null,
    channel: null,
    share_frame_bytes: null,
    frames: { published: 0, refused: 0, received: 0, late: 0, cancelled: 0, refused_at_edge: 0, not_decoded: 0, link_bytes: 0 },
    log_bytes: 0,
    edge_store: null,
    camera_store: null,
    contracts: [contract()],
    picture: null,
    ...more,
});

const frame = (rung: string, accuracy: number | null, sequence = 1): NonNullable<Camera["newest"]> => ({
    epoch: 1,
    sequence,
    captured_utc_ms: 0,
    age_ms: 40,
    bytes: 5_400,
    rung,
    encoding: "h264",
    width: 512,
    height: 384,
    accuracy,
});

/** An answer of the edge with one camera, `second` seconds after the edge's start. */
const answer = (second: number, of: Camera, started = 1_000): Cameras => ({
    now_utc_ms: started + second * 1_000,
    edge_start: started,
    cameras: [of],
});

test("a timeline keeps its length, fills missing values with gaps, and drops columns without values", () => {
    const timeline = new Timeline();
    timeline.add(0, new Map([["a", 1]]));
    for (let second = 1; second <= SAMPLES_MAX; second += 1) timeline.add(second, new Map([["b", second]]));
    timeline.add(5, new Map([["b", -1]]));
    assert.equal(timeline.times.length, SAMPLES_MAX);
    assert.equal(timeline.column("b").length, SAMPLES_MAX);
    assert.equal(timeline.column("b").at(-1), SAMPLES_MAX);
    assert.deepEqual(timeline.names(""), ["b"]);
});

test("skips are counted between two answers, also over a restart of the edge", () => {
    const histories = new Histories();
    const skipped = (count: number): Camera => camera({ contracts: [contract({ skipped: { link_busy: count } })] });
    histories.add(answer(1, skipped(100)));
    histories.add(answer(2, skipped(103)));
    histories.add(answer(2, skipped(103)));
    histories.add(answer(0, skipped(40), 10_000));
    histories.add(answer(1, skipped(41), 10_000));
    const timeline = histories.of("dock/cam1")?.timeline;
    assert.deepEqual(timeline?.column(contractColumn(7, "skip:link_busy")), [null, 3, null, 1]);
    assert.deepEqual(timeline?.column(contractColumn(7, "p95")), [60, 60, 60, 60]);
});

test("a rung is recorded for new frames only", () => {
    const histories = new Histories();
    histories.add(answer(1, camera({ newest: frame("original", null) })));
    histories.add(answer(2, camera({ newest: frame("original", null) })));
    histories.add(answer(3, camera({ newest: frame("h264/w512/q40", 0.96, 2) })));
    const history = histories.of("dock/cam1");
    assert.deepEqual(history?.rungs, ["original", "h264/w512/q40"]);
    assert.deepEqual(history?.timeline.column("rung"), [0, null, 1]);
});

const said = (of: Camera): string =>
    whyNow(of)
        .map((sentence) => sentence.text)
        .join("\n");

test("why: a coarse picture is explained by the link, the profile and the edge's own sentence", () => {
    const why = said(
        camera({
            newest: frame("h264/w384/q46", 0.91),
            link_bits_per_second: 600_000,
            published_bits_per_second: 6e6,
            channel: "hall",
            share_frame_bytes: 12_000,
            contracts: [contract({ state: "infeasible", reason: "the link carries 0.6 Mbit/s; the floor needs 1.1 Mbit/s" })],
        }),
    );
    assert.match(why, /counter: cannot be kept. The link carries 0.6 Mbit\/s; the floor needs 1.1 Mbit\/s\./);
    assert.match(why, /384 pixels wide, quantiser 46/);
    assert.match(why, /is 0\.910, below the floor of 0\.950/);
    assert.match(
        why,
        /carries about 600 kbit\/s, and the camera publishes 6 Mbit\/s: originals do not fit\. The camera shares the channel “hall” with other cameras; its share is 12 kB per frame/,
    );
});

test("why: cameras without applications, without a floor, absent, or without a source", () => {
    assert.match(said(camera({ contracts: [] })), /No application subscribes/);
    assert.match(said(camera({ contracts: [contract({ accuracy_floor: null })] })), /None of the applications \(counter\) sets/);
    assert.match(said(camera({ connected: false })), /not connected/);
    const source = { state: "lost" as const, reason: "unplugged", lasts_ms: 70_000, retry_ms: 5_000 };
    assert.match(said(camera({ source })), /The source is lost \(for 1 min 10 s\): unplugged\. Next attempt in 5 s\./);
});

test("rungs by fineness", () => {
    const fine = ["h264/w512/q30", "original", "h264/q18", "jpeg/w512/q80", "h264/q40", "h264/w512/q44", "jpeg/w512/q20"];
    assert.deepEqual(fine.sort(byFineness), [
        "h264/w512/q44",
        "h264/w512/q30",
        "jpeg/w512/q20",
        "jpeg/w512/q80",
        "h264/q40",
        "h264/q18",
        "original",
    ]);
});

test("rungs in words", () => {
    assert.equal(
        rungInWords("jpeg/w640/q70/420/skip2"),
        "JPEG, 640 pixels wide, quality 70 of 100, a quarter of the colour samples, 1 of 3 frames",
    );
    assert.equal(rungInWords("data/top=10"), "data/top=10");
});

test("numbers with their units", () => {
    assert.equal(units.bitRate(999_700), "1 Mbit/s");
    assert.equal(units.bytes(14_230), "14.2 kB");
    assert.equal(units.milliseconds(48.4), "48 ms");
    assert.equal(units.milliseconds(1_234), "1.23 s");
    assert.equal(units.milliseconds(200_000), "3 min 20 s");
    assert.equal(units.percent(0.9999), "99.9 %");
    assert.equal(units.bitRate(null), units.UNKNOWN);
});

test("addresses of views, and of one-time links", () => {
    assert.deepEqual(parseRoute(cameraHref("dock/cam 1%")), { view: "camera", camera: "dock/cam 1%" });
    assert.deepEqual(parseRoute("#/camera/%E0%A4%A"), { view: "camera", camera: "%E0%A4%A" });
    assert.deepEqual(parseRoute("#token=secret"), { view: "cameras" });
    assert.equal(tokenIn("#token=secret"), "secret");
    assert.equal(tokenIn("#/site"), null);
});

/** Frames from 10 to 20 and from 60 to 70 of 0 to 100 s. */
const held = (more: Partial<Held> = {}): Held => ({
    edge_start: 1,
    now_utc_ms: 200_000,
    since_utc_ms: 0,
    until_utc_ms: 100_000,
    surveyed_until_utc_ms: 100_000,
    stored: true,
    edge_from_utc_ms: 10_000,
    edge_until_utc_ms: 70_000,
    camera_from_utc_ms: null,
    camera_unanswered: null,
    camera_surveyed_until_utc_ms: null,
    camera_spans: null,
    camera_holes: null,
    spans: [
        { from_utc_ms: 10_000, to_utc_ms: 20_000, frames: 100, skipped: {} },
        { from_utc_ms: 60_000, to_utc_ms: 70_000, frames: 100, skipped: {} },
    ],
    holes: [
        { from_utc_ms: 0, to_utc_ms: 10_000, reason: "gone", skipped: {} },
        { from_utc_ms: 20_000, to_utc_ms: 60_000, reason: "link_down", skipped: { link_down: 400 } },
        { from_utc_ms: 70_000, to_utc_ms: 100_000, reason: "camera_absent", skipped: {} },
    ],
    ...more,
});

test("playback skips times without frames, and ends after the last frame", () => {
    assert.equal(playedFrom(held(), 15_000), 15_000);
    assert.equal(playedFrom(held(), 20_000), 20_000, "the last frame before a hole");
    assert.equal(playedFrom(held(), 20_200), 60_000);
    assert.equal(playedFrom(held(), 70_200), null);
    // The camera's frames are fetched.
    assert.equal(playedFrom(held({ camera_from_utc_ms: 30_000 }), 20_200), 30_000);
    assert.equal(playedFrom(held({ camera_from_utc_ms: 30_000 }), 40_000), 40_000);
    assert.equal(isAtCamera(held({ camera_from_utc_ms: 30_000 }), 29_999), false);
    assert.equal(spanAt(held(), 20_000)?.frames, 100);
    assert.equal(holeAt(held(), 20_001)?.reason, "link_down");
    assert.deepEqual(piece(60_000, 170_000, held()), { left: 0.6, width: 0.4 });
});

/** The camera has frames from 15 to 40, and from 50 to 80. */
const withCamera = (more: Partial<Held> = {}): Held =>
    held({
        camera_from_utc_ms: 15_000,
        camera_surveyed_until_utc_ms: 100_000,
        camera_spans: [
            { from_utc_ms: 15_000, to_utc_ms: 40_000, frames: 250, skipped: {} },
            { from_utc_ms: 50_000, to_utc_ms: 80_000, frames: 1, skipped: { damaged: 3 } },
        ],
        camera_holes: [
            { from_utc_ms: 0, to_utc_ms: 15_000, reason: "gone", skipped: {} },
            { from_utc_ms: 40_000, to_utc_ms: 50_000, reason: "camera_restarted", skipped: {} },
            { from_utc_ms: 80_000, to_utc_ms: 100_000, reason: "not_published", skipped: {} },
        ],
        ...more,
    });

test("playback skips times for which neither the edge nor the camera has frames", () => {
    const told = withCamera();
    assert.equal(playedFrom(told, 5_000), 10_000, "the camera begins later than the edge");
    assert.equal(playedFrom(told, 30_000), 30_000, "the camera has it");
    assert.equal(playedFrom(told, 40_000), 40_000, "the camera's last frame before its hole");
    assert.equal(playedFrom(told, 40_200), 50_000);
    assert.equal(playedFrom(told, 79_000), 79_000);
    assert.equal(playedFrom(told, 80_200), null, "no frames follow");
    // The edge has frames where the camera has none.
    const restarted = withCamera({ spans: [{ from_utc_ms: 10_000, to_utc_ms: 70_000, frames: 600, skipped: {} }], holes: [] });
    assert.equal(playedFrom(restarted, 45_000), 45_000);
    assert.equal(isAtCamera(restarted, 45_000), false);
    // A pause too short to be reported is not a hole. Nor is a part that the camera did not survey.
    const cut = withCamera({ camera_surveyed_until_utc_ms: 30_000, camera_spans: [told.camera_spans![0]!], camera_holes: [] });
    assert.equal(isAtCamera(cut, 60_000), true);
    assert.equal(isAtCamera(cut, 14_000), false);
    assert.equal(atCamera(held()), null);
    // A camera without frames.
    const empty = withCamera({ camera_from_utc_ms: null, camera_spans: [], camera_holes: [{ ...told.holes[0]!, to_utc_ms: 100_000 }] });
    assert.equal(playedFrom(empty, 20_200), 60_000);
    assert.equal(playedFrom(empty, 70_200), null);
});

test("the page says why the edge and the camera have no frames of a time", () => {
    const told = withCamera();
    assert.equal(standing(told, 12_000), "The edge has frames of this time, in a span of 100 frames.");
    assert.equal(
        standing(told, 30_000),
        "The edge has no frames of this time: no link between camera and edge. The camera has a span of 250 frames.",
    );
    assert.match(standing(told, 55_000), /The camera has a span of 1 frame \(missing: 3 frames\)\.$/);
    assert.equal(
        standing(told, 45_000),
        "The edge has no frames of this time: no link between camera and edge. The camera has none either: it was restarted; the number of missing frames is unknown.",
    );
    assert.match(standing(told, 5_000), /: the edge has no frames that old\. .* either: it has no frames that old\.$/);
    // A camera of an earlier version reports only its oldest frame.
    assert.match(standing(held({ camera_from_utc_ms: 30_000 }), 40_000), /The camera may have frames\.$/);
    assert.equal(
        standing(held({ camera_from_utc_ms: 30_000 }), 25_000),
        "There are no frames of this time: no link between camera and edge.",
    );
    assert.match(standing(held({ camera_unanswered: "not_answered" }), 40_000), /^The edge has no frames .* The camera did not answer\.$/);
});

test("boxes of the past are drawn on their frame, and for two seconds if there are no newer ones", () => {
    const found = (application: string, sequence: number, class_name: string): Note => ({
        at_utc_ms: sequence * 100 + 50,
        missing: 0,
        kind: "reply",
        application,
        state: null,
        sentence: "",
        reply: {
            epoch: 1,
            sequence,
            captured_utc_ms: sequence * 100,
            width: 320,
            height: 180,
            found: 1,
            detections: [{ xyxy: [0, 0, 9, 9], score: null, class_id: null, class_name, tracker_id: null }],
        },
    });
    const notes = [found("counter", 40, "cat"), found("plates", 41, "van"), found("counter", 42, "dog"), found("counter", 43, "cow")];
    const drawn = (sequence: number): string[] =>
        repliesOn({ epoch: 1, sequence, capturedMs: sequence * 100 }, notes).flatMap((reply) =>
            reply.detections.map((one) => one.class_name),
        );
    assert.deepEqual(drawn(39), [], "boxes are not drawn on frames before their own");
    assert.deepEqual(drawn(40), ["cat"]);
    assert.deepEqual(drawn(42), ["dog", "van"]);
    assert.deepEqual(drawn(62), ["cow"], "the van was found two seconds ago, so it is not drawn");
    assert.deepEqual(drawn(90), []);
});

test("the address of a history names its camera", () => {
    assert.equal(historyHref("dock/cam 1"), "#/history/dock/cam%201");
    assert.deepEqual(parseRoute("#/history/dock/cam%201"), { view: "history", camera: "dock/cam 1" });
    assert.deepEqual(parseRoute("#/history"), { view: "cameras" });
});

test("notes are read page by page, up to a bound", async () => {
    const asked: (string | undefined)[] = [];
    const of = (pages: number) => async (after?: string) => {
        asked.push(after);
        const next = asked.length < pages ? `1-${asked.length}` : null;
        return { edge_start: 0, now_utc_ms: 0, notes: [{ sentence: String(asked.length) } as Note], next };
    };
    const whole = await allNotes(of(3));
    assert.deepEqual([whole.notes.map((note) => note.sentence), whole.more], [["1", "2", "3"], false]);
    assert.deepEqual(asked.splice(0), [undefined, "1-1", "1-2"]);
    const cut = await allNotes(of(100));
    assert.deepEqual([cut.notes.length, cut.more], [5, true]);
});

test("the frames of a piece of video are parsed, and an incomplete frame is an error", () => {
    const piece = Uint8Array.from([0x80, 0, 0, 2, 7, 8, 0, 0, 0, 1, 9]);
    const frames = framesIn(piece.buffer);
    assert.deepEqual(
        frames.map(({ key, bytes }) => [key, ...bytes]),
        [
            [true, 7, 8],
            [false, 9],
        ],
    );
    assert.deepEqual(framesIn(new ArrayBuffer(0)), []);
    assert.throws(() => framesIn(piece.slice(0, 10).buffer));
});

test("the codec is read from a keyframe, also after other units", () => {
    const delimiter = [0, 0, 0, 1, 9, 0xf0];
    const parameters = [0, 0, 1, 0x67, 0x64, 0x00, 0x1f, 0xac];
    assert.equal(codecOf(Uint8Array.from([...delimiter, ...parameters])), "avc1.64001f");
    assert.equal(codecOf(Uint8Array.from([0, 0, 1, 0x41, 1, 2, 3, 4])), null);
});

test("records are formatted for reading, and deep ones stay short", () => {
    assert.equal(readable('{"people":[1,2]}'), '{\n "people": [\n  1,\n  2\n ]\n}');
    assert.equal(readable("two people"), "two people");
    const deep = "[".repeat(8_000) + "]".repeat(8_000);
    assert.equal(readable(deep), deep);
    const wide = `[${"[1],".repeat(4_000)}2]`;
    assert.ok(readable(wide).length <= 64 * 1024);
});

test("the part of a span that was not surveyed", () => {
    const held = { since_utc_ms: 0, until_utc_ms: 100 } as Held;
    assert.equal(unsurveyed(held, 100), null);
    assert.equal(unsurveyed(held, null), null);
    assert.deepEqual(unsurveyed(held, 40), { from_utc_ms: 40, to_utc_ms: 100 });
});

test("snippets name the port unless it is the usual one, and on the edge’s host its socket", () => {
    const all = (host: string, port: number | null, socket: string | null = "/run/mez/edge.sock"): string =>
        snippets("dock/cam1", host, { grpc_port: port, socket })
            .map(({ text }) => text)
            .join("\n");
    assert.match(all("edge.local", 7651), /edge="edge\.local",/);
    assert.match(all("edge.local", 7651), /--edge 'edge\.local' --latency-ms/);
    assert.match(all("edge.local", 7651), /"edge\.local:7651"/);
    assert.match(all("edge.local", 7000), /edge="edge\.local:7000",/);
    assert.match(all("edge.local", 7000), /--edge 'edge\.local:7000' --latency-ms/);
    assert.equal(all("edge.local", null), "");
    for (const here of ["localhost", "127.0.0.1", "[::1]"]) {
        assert.doesNotMatch(all(here, 7651), /enrol|7651|localhost:/);
        assert.match(all(here, null), /edge="unix:\/\/\/run\/mez\/edge\.sock"/);
        assert.equal(all(here, 7651, null), "");
    }
});
