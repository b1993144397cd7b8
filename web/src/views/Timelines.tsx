/** Timelines of a camera's last five minutes. */

import type { Camera, Contract } from "../api/types.ts";
import { Chart, type Line } from "../parts/Chart.tsx";
import { contractColumn, type History } from "../state/histories.ts";
import { histories } from "../state/page.ts";
import { byFineness, rungInWords } from "../words/rung.ts";
import { skippedInWords } from "../words/states.ts";
import * as units from "../words/units.ts";

const COLOURS = ["one", "two", "three", "four", "five", "six"] as const;

/** Makes stacked bars: each line is the sum of the columns up to its own. The total is drawn first, and the others over it. */
function stacked(columns: { name: string; values: (number | null)[] }[]): Line[] {
    const sums = columns.map((_, upTo) =>
        (columns[0]?.values ?? []).map((_, at) => {
            const parts = columns.slice(0, upTo + 1).map((column) => column.values[at] ?? null);
            return parts.every((part) => part === null) ? null : parts.reduce<number>((sum, part) => sum + (part ?? 0), 0);
        }),
    );
    return columns
        .map(({ name, values }, at): Line => ({
            name,
            values: sums[at] ?? [],
            told: values,
            colour: COLOURS[at % COLOURS.length] ?? "one",
            as: "bar",
        }))
        .reverse();
}

interface Shown {
    history: History;
    camera: Camera;
    contract: Contract | undefined;
}

function Latency({ history: { timeline }, contract }: Shown) {
    if (!contract) return null;
    const column = (what: string): (number | null)[] => timeline.column(contractColumn(contract.subscription, what));
    const { latency_p95_ms: p95, latency_bound_ms: bound } = contract;
    const where = contract.latency_at === "application" ? "when the application took it" : "when the edge handed it over";
    return (
        <Chart
            title="Latency"
            now={`Age of a frame ${where}: 95 % within ${units.milliseconds(p95)}, ${bound === null ? "no bound" : `bound ${units.milliseconds(bound)}`}`}
            times={timeline.times}
            write={units.milliseconds}
            top={(bound ?? 50) * 1.2}
            lines={[
                { name: "median", values: column("p50"), colour: "two" },
                { name: "95 %", values: column("p95"), colour: "one" },
                { name: "bound", values: column("bound"), colour: "bound", dashed: true },
            ]}
        />
    );
}

function Accuracy({ history: { timeline }, contract }: Shown) {
    if (!contract) return null;
    const floor = contract.accuracy_floor;
    const values = timeline.column(contractColumn(contract.subscription, "accuracy"));
    if (floor === null && values.every((value) => value === null)) return null;
    return (
        <Chart
            title="Accuracy"
            now={`Expected accuracy: ${units.accuracy(contract.accuracy)}, ${floor === null ? "no floor" : `floor ${units.accuracy(floor)}`}`}
            times={timeline.times}
            write={units.accuracy}
            bottom={Math.min(0.9, (floor ?? 1) - 0.05)}
            top={1}
            lines={[
                { name: "expected", values, colour: "one" },
                { name: "floor", values: timeline.column(contractColumn(contract.subscription, "floor")), colour: "bound", dashed: true },
            ]}
        />
    );
}

function Rates({ history: { timeline }, camera }: Shown) {
    return (
        <Chart
            title="Link"
            now={`${units.bitRate(camera.crossed_bits_per_second)} on the link; ${camera.link_bits_per_second === null ? "the link’s capacity is not measured yet" : `the link’s capacity is about ${units.bitRate(camera.link_bits_per_second)}`}`}
            times={timeline.times}
            write={units.bitRate}
            lines={[
                { name: "on the link", values: timeline.column("crossed"), colour: "one" },
                { name: "published", values: timeline.column("published"), colour: "two" },
                { name: "link capacity", values: timeline.column("link"), colour: "bound", dashed: true },
            ]}
        />
    );
}

function Rungs({ history: { timeline, rungs }, camera }: Shown) {
    const column = timeline.column("rung");
    // Only the rungs within the timeline's span, the finest on top.
    const shown = rungs.filter((_, place) => column.includes(place)).sort(byFineness);
    const values = column.map((place) => (place === null ? null : shown.indexOf(rungs[place] ?? "")));
    return (
        <Chart
            title="Encoding"
            now={camera.newest ? `Now ${rungInWords(camera.newest.rung)}` : "No frame yet"}
            times={timeline.times}
            write={(place) => shown[place] ?? ""}
            bottom={-0.5}
            top={Math.max(0.5, shown.length - 0.5)}
            names={shown}
            lines={[{ name: "rung", values, colour: "one", as: "step" }]}
        />
    );
}

function Skips({ history: { timeline }, contract }: Shown) {
    if (!contract) return null;
    const start = contractColumn(contract.subscription, "skip:");
    const columns = timeline
        .names(start)
        .map((name) => ({ reason: name.slice(start.length), values: timeline.column(name) }))
        .filter(({ values }) => values.some((value) => value !== null && value > 0));
    const total = columns.flatMap(({ values }) => values).reduce<number>((sum, value) => sum + (value ?? 0), 0);
    return (
        <Chart
            title="Skipped frames"
            now={total === 0 ? "None in this time" : `${units.counted(total, "frame")} in this time`}
            times={timeline.times}
            write={(count) => (Number.isInteger(count) ? count.toLocaleString("en") : "")}
            top={4}
            lines={stacked(columns.map(({ reason, values }) => ({ name: skippedInWords(reason), values })))}
        />
    );
}

export function Timelines(shown: { camera: Camera; contract: Contract | undefined }) {
    const history = histories.of(shown.camera.name);
    if (!history) return null;
    const of = { ...shown, history };
    return (
        <section aria-labelledby="timelines">
            <h2 id="timelines">Last five minutes</h2>
            <p class="hint">
                Since this page was opened{shown.contract ? `; contract of ${shown.contract.application || "an application"}` : ""}.
            </p>
            <Latency {...of} />
            <Accuracy {...of} />
            <Rates {...of} />
            <Rungs {...of} />
            <Skips {...of} />
        </section>
    );
}
