//! A clip of a camera's past as a download: the frames on disk of a short span, as MP4.
//!
//! The clip is complete before its first byte is sent, so a failure can still be answered with an error. The clip is
//! removed once it is sent, or when its reader is gone. The next start of the edge removes what a killed edge has left.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;

use super::caller::Caller;
use super::fill::utc_ms;
use super::response::{Answer, Refused, stream};
use super::route::Site;

/// The most clips that are made or sent at once.
pub(super) const CLIPS_MAX: usize = 2;
/// The longest span of a clip.
pub(super) const SPAN_MAX: Duration = Duration::from_secs(5 * 60);
/// The largest clip, in bytes.
const BYTES_MAX: u64 = 256 << 20;
/// The longest time that making a clip may take.
const MAKING_TIME_MAX: Duration = Duration::from_secs(60);
/// How often the size of a clip in progress is checked.
const MEASURE_INTERVAL: Duration = Duration::from_millis(200);
/// The most bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// The most pieces that wait for the connection.
const PIECES_MAX: usize = 2;
/// The header with the number of frames that are not in the file, because they are not video.
const NOT_COPIED: HeaderName = HeaderName::from_static("mez-frames-left-out");

/// Makes a clip and starts to send it.
pub(super) async fn answer(
    site: &Site,
    caller: &Caller,
    (camera, span): (CameraName, (Timestamp, Timestamp)),
    place: OwnedSemaphorePermit,
) -> Result<Answer, Refused> {
    let clips = site.api.clips(&caller.principal, &camera)?;
    let folder = folder_in(clips).map_err(|error| {
        let place = clips.display();
        let detail = format!("cannot make a folder for the clip in {place}: {error}; free space there");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "NO_SPACE", detail)
    })?;
    let output = folder.path().join("clip.mp4");
    let summary = tokio::select! {
        made = site.api.clip(&caller.principal, &camera, span, &output) => made?,
        refused = grows_too_large(folder.path()) => return Err(refused),
    };
    let file = std::fs::File::open(&output).map_err(|error| {
        let detail = format!("the clip cannot be read: {error}; ask again");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "NOT_EXPORTED", detail)
    })?;
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    spawn_blocking(move || {
        send(file, &pieces);
        drop((folder, place));
    });
    let mut answer = stream("video/mp4", receiver);
    let name = format!("{}-{}.mp4", camera.as_str().replace('/', "-"), utc_ms(span.0));
    // Camera names are printable and contain no quotes.
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    answer.headers_mut().insert(header::CONTENT_LENGTH, summary.file_bytes.into());
    answer.headers_mut().insert(NOT_COPIED, summary.not_copied.into());
    Ok(answer)
}

/// A folder for one clip that only the edge's user can open.
fn folder_in(clips: &Path) -> io::Result<TempDir> {
    DirBuilder::new().recursive(true).mode(0o700).create(clips)?;
    tempfile::Builder::new().prefix("clip-").permissions(Permissions::from_mode(0o700)).tempdir_in(clips)
}

/// Completes when the files in a folder have more than [`BYTES_MAX`], or after [`MAKING_TIME_MAX`].
async fn grows_too_large(folder: &Path) -> Refused {
    let refused = |detail: String| Refused::new(StatusCode::BAD_REQUEST, "CLIP_TOO_LARGE", detail);
    let due = tokio::time::Instant::now() + MAKING_TIME_MAX;
    while tokio::time::Instant::now() < due {
        tokio::time::sleep(MEASURE_INTERVAL).await;
        if bytes_in(folder) > BYTES_MAX {
            return refused(format!("the clip has more than {BYTES_MAX} bytes; ask for a shorter one"));
        }
    }
    let seconds = MAKING_TIME_MAX.as_secs();
    refused(format!("the clip was not made within {seconds} s; ask for a shorter one"))
}

fn bytes_in(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|data| data.len()).sum()
}

/// Sends a file piece by piece, as fast as the connection takes the pieces.
fn send(mut file: std::fs::File, pieces: &mpsc::Sender<Bytes>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        // After a read error the body is shorter than its `Content-Length`, which the other side notices.
        let Ok(length @ 1..) = file.read(&mut piece) else { return };
        piece.truncate(length);
        if pieces.blocking_send(piece.into()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clips are decrypted.
    #[test]
    fn only_the_user_of_the_edge_can_open_the_folder_of_a_clip() {
        let state = tempfile::tempdir().unwrap();
        let clips = state.path().join("edge/@clips");
        let folder = folder_in(&clips).unwrap();
        for place in [clips.as_path(), folder.path()] {
            assert_eq!(place.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert!(folder.path().starts_with(&clips));
    }
}
