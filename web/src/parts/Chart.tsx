/** A timeline. All timelines of a view share one time axis and one cursor. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

/** One line, or one series of bars. */
export interface Line {
    name: string;
    values: (number | null)[];
    /** Values for the legend instead of `values`: of stacked bars, their own heights. */
    told?: (number | null)[];
    /** The name of a colour in styles.css, without the leading dashes: `one` to `six`, `bound`. */
    colour: string;
    /** Bounds are dashed, so that they can be distinguished without colours. */
    dashed?: boolean;
    /** `step` holds each value until the next sample; `bar` begins at zero. */
    as?: "line" | "step" | "bar";
}

export interface ChartProps {
    title: string;
    /** The current values, as text beside the title and for screen readers. */
    now: string;
    times: number[];
    lines: Line[];
    write: (value: number) => string;
    /** The upper end of the value axis is at least this. */
    top?: number;
    /** The lower end of the value axis is at most this; default 0. */
    bottom?: number;
    /** Labels of the value axis, if values are places in a list of names. */
    names?: readonly string[];
}

/** Shortest time axis, in seconds. Otherwise a page that was just opened would draw one second over the whole width. */
const SPAN_MIN = 60;
const HEIGHT = 132;
/** Height of each label of `ChartProps.names`, in pixels. */
const NAME_HEIGHT = 15;
/** Height of the time axis, in pixels. */
const TIME_HEIGHT = 34;
const AXIS_WIDTH = 116;

/** Returns the value of a colour in styles.css, in the current theme. A canvas cannot use CSS variables. */
type Colours = (name: string) => string;

function coloursAt(element: HTMLElement): Colours {
    return (name) => {
        element.style.setProperty("color", `var(--${name})`);
        const { color } = getComputedStyle(element);
        element.style.removeProperty("color");
        return color;
    };
}

/** Colours, and the properties of the last rendering: a chart outlives many renderings. */
interface Context {
    colours: Colours;
    latest: () => ChartProps;
}

function seriesOf(line: Line, at: number, { colours, latest }: Context): uPlot.Series {
    const colour = colours(line.colour);
    const told = (sample: number | null): string => {
        const { lines, write } = latest();
        const value = sample === null ? null : ((lines[at]?.told ?? lines[at]?.values)?.[sample] ?? null);
        return value === null ? "–" : write(value);
    };
    const paths =
        line.as === "step" ? uPlot.paths.stepped?.({ align: 1 }) : line.as === "bar" ? uPlot.paths.bars?.({ size: [0.9, 8] }) : undefined;
    return {
        label: line.name,
        stroke: colour,
        width: line.as === "bar" ? 0 : 1.5,
        ...(line.as === "bar" ? { fill: colour } : {}),
        ...(line.dashed ? { dash: [6, 4] } : {}),
        ...(paths ? { paths } : {}),
        points: { show: false },
        value: (_, __, ___, sample) => told(sample ?? null),
    };
}

function axesOf(props: ChartProps, colours: Colours): uPlot.Axis[] {
    const stroke = colours("quiet");
    const grid = { stroke: colours("rule"), width: 1 };
    const font = '11px system-ui, "Segoe UI", sans-serif';
    const { names } = props;
    return [
        { stroke, grid, font, ticks: { show: false }, size: 24, values: "{HH}:{mm}:{ss}", space: 70 },
        {
            stroke,
            grid,
            font,
            ticks: { show: false },
            size: AXIS_WIDTH,
            space: 26,
            ...(names ? { splits: () => names.map((_, place) => place) } : {}),
            values: (_, marks) => marks.map((mark) => (names ? (names[mark] ?? "") : props.write(mark))),
        },
    ];
}

function spanOf(times: readonly number[]): [number, number] {
    const newest = times.at(-1) ?? 0;
    return [Math.min(times[0] ?? newest, newest - SPAN_MIN), newest];
}

const heightOf = ({ names }: ChartProps): number => Math.max(HEIGHT, TIME_HEIGHT + NAME_HEIGHT * (names?.length ?? 0));

function optionsOf(width: number, context: Context): uPlot.Options {
    const props = context.latest();
    const { top = 0, bottom = 0 } = props;
    return {
        width,
        height: heightOf(props),
        padding: [8, 8, 0, 0],
        legend: { live: true },
        cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
            // Computed from the samples, because uPlot's own range for a single sample is a day.
            x: { range: () => spanOf(context.latest().times) },
            y: { range: (_, least, most) => [Math.min(bottom, least ?? bottom), Math.max(top, (most ?? top) * 1.05)] },
        },
        axes: axesOf(props, context.colours),
        series: [
            { value: (_, time: number | null) => (time === null ? "–" : new Date(time * 1000).toLocaleTimeString("en-GB")) },
            ...props.lines.map((line, at) => seriesOf(line, at, context)),
        ],
    };
}

/** Everything but the data. If this changes, the chart is created again. */
function shapeOf(props: ChartProps): string {
    return JSON.stringify([
        props.lines.map(({ name, colour }) => [name, colour]),
        props.names,
        props.top,
        props.bottom,
        document.documentElement.dataset["theme"],
    ]);
}

export function Chart(props: ChartProps) {
    const place = useRef<HTMLDivElement>(null);
    const chart = useRef<uPlot | null>(null);
    const latest = useRef(props);
    latest.current = props;
    const shape = shapeOf(props);
    const data = [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
    const latestData = useRef(data);
    latestData.current = data;

    useEffect(() => {
        const element = place.current;
        if (!element) return;
        const make = (): void => {
            chart.current?.destroy();
            chart.current = new uPlot(
                optionsOf(element.clientWidth, { colours: coloursAt(element), latest: () => latest.current }),
                latestData.current,
                element,
            );
        };
        make();
        const observer = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: heightOf(latest.current) }));
        observer.observe(element);
        const scheme = matchMedia("(prefers-color-scheme: dark)");
        scheme.addEventListener("change", make);
        return () => {
            observer.disconnect();
            scheme.removeEventListener("change", make);
            chart.current?.destroy();
            chart.current = null;
        };
    }, [shape]);
    useEffect(() => chart.current?.setData(data));

    return (
        <figure class="chart">
            <figcaption>
                <h3>{props.title}</h3>
                <span>{props.now}</span>
            </figcaption>
            <div ref={place} role="img" aria-label={`${props.title} over the last five minutes. ${props.now}`} />
        </figure>
    );
}
