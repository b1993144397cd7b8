//! Passes the brokers' log records to Python's `logging`, under the name `mez`.
//!
//! Brokers log on threads that must not wait for the interpreter, so records are queued. Python threads
//! pass them on when they call into Mez: with every frame that they send or wait for, and while they wait.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Maximum number of queued records. Beyond that the oldest is dropped.
const RECORDS_MAX: usize = 256;
/// Maximum number of cameras whose last warning is kept, for error messages. Beyond that the oldest is dropped.
const TROUBLE_MAX: usize = 64;

/// Queued records. The lock is only tried, never waited for: in a forked child it may be held for ever.
static RECORDS: Mutex<VecDeque<Record>> = Mutex::new(VecDeque::new());
static ANY: AtomicBool = AtomicBool::new(false);
/// The last warning about each camera, until an informational record is logged about it. The lock is only tried, like that of [`RECORDS`].
static TROUBLE: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());
static START: Once = Once::new();

struct Record {
    level: Level,
    camera: Option<String>,
    text: String,
}

/// Starts to collect records, unless this process already logs in another way, like the command `mez`.
pub(crate) fn gather() {
    START.call_once(|| {
        let _ = tracing_subscriber::registry().with(Gather).try_init();
    });
}

/// Passes the collected records to Python.
pub(crate) fn hand_on(py: Python<'_>) {
    if !ANY.swap(false, Ordering::Relaxed) {
        return;
    }
    let Ok(records) = RECORDS.try_lock().map(|mut records| std::mem::take(&mut *records)) else { return };
    for record in records {
        // A failing logger must not make a frame fail.
        let _ = log(py, record);
    }
}

/// The last warning about a camera, such as why it is not connected.
pub(crate) fn last_trouble(camera: &str) -> Option<String> {
    let trouble = TROUBLE.try_lock().ok()?;
    trouble.iter().find(|(name, _)| name == camera).map(|(_, text)| text.clone())
}

fn keep_trouble(record: &Record) {
    let (Some(camera), Ok(mut trouble)) = (&record.camera, TROUBLE.try_lock()) else { return };
    trouble.retain(|(name, _)| name != camera);
    if record.level <= Level::WARN {
        if trouble.len() == TROUBLE_MAX {
            trouble.pop_front();
        }
        trouble.push_back((camera.clone(), record.text.clone()));
    }
}

fn log(py: Python<'_>, record: Record) -> PyResult<()> {
    let level = match record.level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    };
    let logger = py.import("logging")?.call_method1("getLogger", ("mez",))?;
    let extra = PyDict::new(py);
    extra.set_item("camera", &record.camera)?;
    let named = PyDict::new(py);
    named.set_item("extra", extra)?;
    let text = match record.camera {
        Some(camera) => format!("{camera}: {}", record.text),
        None => record.text,
    };
    logger.call_method("log", (level, "%s", text), Some(&named))?;
    Ok(())
}

struct Gather;

impl<S: Subscriber> Layer<S> for Gather {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Logs of libraries matter only for debugging Mez itself.
        metadata.target().starts_with("mez") && *metadata.level() <= Level::INFO
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let record = Record {
            level: *event.metadata().level(),
            camera: fields.camera,
            text: match fields.others.as_str() {
                "" => fields.message,
                others => format!("{} ({others})", fields.message),
            },
        };
        keep_trouble(&record);
        let Ok(mut records) = RECORDS.try_lock() else { return };
        if records.len() == RECORDS_MAX {
            records.pop_front();
        }
        records.push_back(record);
        ANY.store(true, Ordering::Relaxed);
    }
}

/// The fields of a record as text.
#[derive(Default)]
struct Fields {
    message: String,
    camera: Option<String>,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "camera" => self.camera = Some(format!("{value:?}")),
            // Writing to a string does not fail.
            name => {
                let separator = if self.others.is_empty() { "" } else { ", " };
                let _ = write!(self.others, "{separator}{name}={value:?}");
            }
        }
    }
}
