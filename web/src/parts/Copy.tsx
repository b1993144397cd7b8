/** Text to copy, with a button that copies it. */

import { useState } from "preact/hooks";

export function Copy({ title, text }: { title: string; text: string }) {
    const [copied, setCopied] = useState(false);
    const copy = async (): Promise<void> => {
        await navigator.clipboard.writeText(text);
        setCopied(true);
        setTimeout(() => setCopied(false), 2_000);
    };
    return (
        <figure class="copy">
            <figcaption>
                {title}
                <button type="button" onClick={copy} aria-label={`${copied ? "Copied" : "Copy"} ${title}`}>
                    {copied ? "Copied" : "Copy"}
                </button>
            </figcaption>
            <pre tabIndex={0} aria-label={title}>
                <code>{text}</code>
            </pre>
        </figure>
    );
}
