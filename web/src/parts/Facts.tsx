/** Names with their values. */

import type { ComponentChildren } from "preact";

import { meaningOfTerm } from "../words/glossary.ts";

/** Name, value, and if the glossary explains the name, its term there. */
export type Fact = [name: string, value: ComponentChildren, term?: string];

export function Facts({ facts }: { facts: readonly Fact[] }) {
    return (
        <dl class="facts">
            {facts.map(([name, value, term]) => (
                <div key={name}>
                    <dt title={term && meaningOfTerm(term)} class={term ? "term" : undefined}>
                        {name}
                    </dt>
                    <dd>{value}</dd>
                </div>
            ))}
        </dl>
    );
}
