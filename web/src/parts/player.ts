/** Decodes H.264 frames of a camera in the browser, and draws them. */

import type { Coded } from "../api/client.ts";

/** The codec string (RFC 6381) of a stream, from the sequence parameter set in a keyframe (ITU-T H.264, 7.3.2.1.1). `null`: none found. */
export function codecOf(keyFrame: Uint8Array): string | null {
    for (let at = 0; at + 6 < keyFrame.length; at++) {
        const begins = keyFrame[at] === 0 && keyFrame[at + 1] === 0 && keyFrame[at + 2] === 1;
        if (!begins || ((keyFrame[at + 3] ?? 0) & 0x1f) !== 7) continue;
        const profile = keyFrame.subarray(at + 4, at + 7);
        return `avc1.${[...profile].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    }
    return null;
}

/** Whether this browser decodes H.264. */
export async function decodesVideo(): Promise<boolean> {
    if (typeof VideoDecoder === "undefined") return false;
    const asked = await VideoDecoder.isConfigSupported({ codec: "avc1.42e01f" }).catch(() => null);
    return asked?.supported === true;
}

export class Player {
    readonly #canvas: HTMLCanvasElement;
    #decoder: VideoDecoder | null = null;
    #codec = "";
    #number = 0;
    /** Decoders in a row that failed before they gave a picture. A decoder reports an error some time after it took the chunk. */
    #failures = 0;
    /** Ends the wait of `take` for the decoder. */
    #wake = (): void => {};

    constructor(canvas: HTMLCanvasElement) {
        this.#canvas = canvas;
    }

    /** Decodes frames that continue the chain or begin a new one. Throws if they cannot be decoded; then the whole chain is needed. */
    async take(frames: readonly Coded[]): Promise<void> {
        for (const { key, bytes } of frames) {
            if (key) this.#begin(codecOf(bytes) ?? "");
            if (this.#decoder?.state !== "configured") throw new Error("there is no keyframe before this frame");
            this.#decoder.decode(new EncodedVideoChunk({ type: key ? "key" : "delta", timestamp: this.#number++, data: bytes }));
        }
        // Back-pressure: returns after the decoder has taken all frames.
        while ((this.#decoder?.decodeQueueSize ?? 0) > 0) {
            await new Promise<void>((resolve) => {
                this.#wake = resolve;
                this.#decoder?.addEventListener("dequeue", () => resolve(), { once: true });
            });
        }
        if (this.#decoder?.state !== "configured") throw new Error("the browser could not decode the video");
    }

    get failures(): number {
        return this.#failures;
    }

    close(): void {
        if (this.#decoder && this.#decoder.state !== "closed") this.#decoder.close();
        this.#decoder = null;
        this.#wake();
    }

    #begin(codec: string): void {
        if (this.#decoder?.state === "configured" && codec === this.#codec) return;
        this.close();
        this.#codec = codec;
        this.#decoder = new VideoDecoder({
            output: (frame) => {
                this.#failures = 0;
                this.#draw(frame);
                frame.close();
            },
            // `take` finds that the decoder is closed.
            error: () => {
                this.#failures++;
                this.#wake();
            },
        });
        // Without a description, WebCodecs expects Annex B frames.
        this.#decoder.configure({ codec, optimizeForLatency: true });
    }

    #draw(frame: VideoFrame): void {
        const { displayWidth, displayHeight } = frame;
        if (this.#canvas.width !== displayWidth || this.#canvas.height !== displayHeight) {
            this.#canvas.width = displayWidth;
            this.#canvas.height = displayHeight;
        }
        this.#canvas.getContext("2d")?.drawImage(frame, 0, 0);
    }
}
