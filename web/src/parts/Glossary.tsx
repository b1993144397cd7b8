/** Terms of Mez with their meanings, for devices whose pointer cannot hover over a term. */

import terms from "virtual:glossary";

export function Glossary() {
    return (
        <details class="glossary">
            <summary>What the words mean</summary>
            <dl>
                {Object.entries(terms).map(([term, meaning]) => (
                    <div key={term}>
                        <dt>{term}</dt>
                        <dd>{meaning}</dd>
                    </div>
                ))}
            </dl>
        </details>
    );
}
