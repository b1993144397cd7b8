//! Encodes raw pictures as JPEG, off the runtime's threads.

use bytes::Bytes;
use mez_media::Yuv420View;
use mez_media::jpeg::{EncodeError, Encoder, Sampling};

use super::stream::RawPicture;

/// A JPEG encoder that runs on the runtime's blocking threads, so that it holds up no task.
pub(super) struct JpegWorker {
    quality: u8,
    /// `None` while the encoder works, and after a panic has lost it.
    encoder: Option<Encoder>,
}

impl JpegWorker {
    pub(super) fn new(quality: u8) -> Result<Self, EncodeError> {
        Ok(Self { quality, encoder: Some(Encoder::new(quality, Sampling::Yuv420)?) })
    }

    /// Encodes a picture. Also returns the picture's buffer, unless a panic has lost it.
    pub(super) async fn encode(&mut self, raw: RawPicture) -> (Result<Bytes, String>, Option<RawPicture>) {
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => match Encoder::new(self.quality, Sampling::Yuv420) {
                Ok(encoder) => encoder,
                Err(error) => return (Err(error.to_string()), Some(raw)),
            },
        };
        let work = move || {
            let mut encoder = encoder;
            let jpeg = Yuv420View::packed(&raw.planes, raw.width, raw.height)
                .map_err(EncodeError::from)
                .and_then(|view| encoder.encode_yuv420(&view));
            (jpeg, raw, encoder)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((jpeg, raw, encoder)) => {
                self.encoder = Some(encoder);
                (jpeg.map_err(|error| error.to_string()), Some(raw))
            }
            Err(error) => (Err(format!("the encoder failed: {error}")), None),
        }
    }
}
