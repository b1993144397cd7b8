/** What a camera's figures were, once a second, for the last minutes: columns of one length over one axis of time. */

/** Samples that are kept: five minutes. */
export const SAMPLES_MAX = 300;
/** Columns that are kept. Each contract needs about ten. */
const COLUMNS_MAX = 256;

export class Timeline {
    /** When samples were taken, in seconds since 1970-01-01 UTC, by the edge's clock. */
    readonly times: number[] = [];
    readonly #columns = new Map<string, (number | null)[]>();

    /** Appends a sample. A column that `values` does not name gets a gap. A sample that is not newer than the last one is dropped. */
    add(time: number, values: ReadonlyMap<string, number | null>): void {
        const last = this.times.at(-1);
        if (last !== undefined && time <= last) return;
        for (const name of values.keys()) {
            if (!this.#columns.has(name) && this.#columns.size < COLUMNS_MAX) {
                this.#columns.set(name, new Array<number | null>(this.times.length).fill(null));
            }
        }
        this.times.push(time);
        for (const [name, column] of this.#columns) column.push(values.get(name) ?? null);
        if (this.times.length > SAMPLES_MAX) this.#forgetOldest();
    }

    /** The values of a column, one for each of `times`. */
    column(name: string): (number | null)[] {
        return this.#columns.get(name) ?? new Array<number | null>(this.times.length).fill(null);
    }

    /** The names of columns that begin like this, in the order in which they came. */
    names(start: string): string[] {
        return [...this.#columns.keys()].filter((name) => name.startsWith(start));
    }

    #forgetOldest(): void {
        this.times.shift();
        for (const [name, column] of this.#columns) {
            column.shift();
            // Of a subscription that ended, or a reason that no longer occurs.
            if (column.every((value) => value === null)) this.#columns.delete(name);
        }
    }
}
