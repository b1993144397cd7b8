//! The knobs of a stream, and a publisher's function that degrades its records.
//!
//! The function runs on Python threads (`python/mez/_knobs.py`), which take calls from this module and return results. So no thread
//! of the broker ever attaches to the interpreter. A function that hangs blocks its thread; then another thread is requested.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use mez_core::data::DataRecord;
use mez_core::setting::{Form, KnobValue, Setting};
use mez_node::degrade::{Degrade, Key, Knob, Operator, OperatorKind, StreamKnobs};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::error;
use crate::runtime::lock;

/// The knobs of a stream. Several publishers may share them.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Knobs {
    stream: Arc<StreamKnobs>,
    calls: Option<Arc<Calls>>,
}

/// Name, values, operator, and the key of a threshold: the name of a member, or a column.
type Declared = (String, Vec<f64>, Option<String>, Option<String>, Option<usize>);

/// The call's number, the record's bytes, its content type, and the knobs.
type CallParts<'py> = (u64, Bound<'py, PyBytes>, String, Vec<(String, f64)>);

#[pymethods]
impl Knobs {
    /// `skips`: how many records may be left out after each that is sent. `function`: what the function is called, if there is one.
    #[new]
    #[pyo3(signature = (knobs, skips, function))]
    fn new(py: Python<'_>, knobs: Vec<Declared>, skips: Vec<u8>, function: Option<String>) -> PyResult<Self> {
        let mut declared = Vec::with_capacity(knobs.len());
        for (name, numbers, operator, member, column) in knobs {
            let value = |number: f64| {
                KnobValue::from_f64(number).ok_or_else(|| {
                    let text =
                        format!("the knob {name} has the value {number:?}; give numbers below 1e9 with six decimals at most");
                    error::argument(py, "values", text)
                })
            };
            let values = numbers.into_iter().map(value).collect::<PyResult<Vec<_>>>()?;
            let key = member.map(Key::Member).or(column.map(Key::Column));
            let operator = operator.map(|operator| {
                let kind = OperatorKind::from_name(&operator).ok_or_else(|| {
                    let names = OperatorKind::ALL.map(OperatorKind::name).join(", ");
                    error::argument(py, "operator", format!("operator is {operator:?}; write one of {names}"))
                })?;
                PyResult::Ok(Operator { kind, key })
            });
            declared.push(Knob { name, values, operator: operator.transpose()? });
        }
        let calls = function.map(|name| Arc::new(Calls::new(name)));
        let degrade = calls.clone().map(|calls| calls as Arc<dyn Degrade>);
        let stream = StreamKnobs::new(declared, skips, degrade)
            .map_err(|failure| error::argument(py, "knobs", failure))?;
        Ok(Self { stream: Arc::new(stream), calls })
    }

    /// All rungs: that of records as they are published first.
    fn rungs(&self) -> Vec<String> {
        let declared = self.stream.declared();
        let forms = std::iter::once(Form::Original).chain(declared.all().into_iter().map(Form::Data));
        let skips = declared.all_skips();
        forms
            .flat_map(|form| skips.iter().map(move |skip| Setting { form, skip: *skip }.to_string()))
            .collect()
    }

    /// The knobs of a rung with their values, and how many records it leaves out after each that is sent.
    fn values(&self, py: Python<'_>, rung: &str) -> PyResult<(Vec<(String, f64)>, u8)> {
        let setting = self.setting(py, rung)?;
        Ok(match setting.form {
            Form::Data(knobs) => (named(knobs.iter()), setting.skip),
            _ => (Vec::new(), setting.skip),
        })
    }

    /// What the operators alone make of a record.
    fn operate<'py>(
        &self,
        py: Python<'py>,
        rung: &str,
        body: PyBackedBytes,
        content_type: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let setting = self.setting(py, rung)?;
        let content_type =
            content_type.parse().map_err(|failure| error::argument(py, "content_type", failure))?;
        let record = DataRecord { content_type, of: None, body: Bytes::from_owner(body) };
        let Form::Data(knobs) = setting.form else { return Ok(PyBytes::new(py, &record.body)) };
        let made = py.detach(|| self.stream.operate(&record, &knobs));
        let made = made.map_err(|failure| error::raise(py, "DataError", failure))?;
        Ok(PyBytes::new(py, &made))
    }

    /// Waits until one more thread is wanted that calls the function. False: none is any more.
    fn wants_thread(&self, py: Python<'_>) -> bool {
        let Some(calls) = &self.calls else { return false };
        py.detach(|| calls.wants_thread())
    }

    /// Waits for the next call of the function; `None`: there is none any more.
    fn next_call<'py>(&self, py: Python<'py>) -> Option<CallParts<'py>> {
        let calls = self.calls.as_ref()?;
        let Call { number, body, content_type, knobs } = py.detach(|| calls.next())?;
        Some((number, PyBytes::new(py, &body), content_type, knobs))
    }

    /// A call has come to an end: with a body, or with the reason why there is none.
    #[pyo3(signature = (number, body, why))]
    fn done(&self, number: u64, body: Option<PyBackedBytes>, why: Option<String>) {
        if let Some(calls) = &self.calls {
            let result = body.map(Bytes::from_owner).ok_or_else(|| why.unwrap_or_default());
            calls.done(number, result);
        }
    }

    /// Begins to take calls again.
    fn open(&self) {
        if let Some(calls) = &self.calls {
            lock(&calls.state).closed = false;
        }
    }

    /// Ends all waiting. Calls fail from now on.
    fn close(&self) {
        if let Some(calls) = &self.calls {
            calls.close();
        }
    }
}

impl Knobs {
    /// The knobs for a camera broker.
    pub(crate) fn stream(&self) -> Arc<StreamKnobs> {
        Arc::clone(&self.stream)
    }

    /// The setting of a rung of this stream.
    fn setting(&self, py: Python<'_>, rung: &str) -> PyResult<Setting> {
        let setting: Setting = rung.parse().map_err(|failure| error::argument(py, "rung", failure))?;
        let declared = self.stream.declared();
        let is_known = match setting.form {
            Form::Original => declared.skips(setting.skip),
            Form::Data(knobs) => declared.has(&knobs) && declared.skips(setting.skip),
            _ => false,
        };
        if is_known {
            return Ok(setting);
        }
        let text = format!("{rung:?} is not a rung of this stream; Knobs.rungs() lists its rungs");
        Err(error::argument(py, "rung", text))
    }
}

fn named<'a>(knobs: impl Iterator<Item = (&'a str, KnobValue)>) -> Vec<(String, f64)> {
    knobs.map(|(name, value)| (name.to_owned(), value.get())).collect()
}

/// A call of the function.
struct Call {
    number: u64,
    body: Bytes,
    content_type: String,
    knobs: Vec<(String, f64)>,
}

/// The calls of a function, between the threads of codecs and those of Python.
///
/// Each codec waits for one call at a time, and abandons at most [`mez_media::worker::LATE_THREADS_MAX`]
/// calls that hang. This limits the number of calls and threads per codec.
struct Calls {
    name: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    /// Channels for the results of unfinished calls, by number.
    open: HashMap<u64, SyncSender<Result<Bytes, String>>>,
    next: u64,
    /// Python threads that wait for a call, or are about to.
    idle: usize,
    closed: bool,
}

impl Calls {
    fn new(name: String) -> Self {
        // Calls are not taken before the first publisher opens.
        let state = State { closed: true, ..State::default() };
        Self { name, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until the state is as wanted, or no more calls are taken.
    fn wait_for(&self, wanted: impl Fn(&State) -> bool) -> std::sync::MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while !state.closed && !wanted(&state) {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state
    }

    fn wants_thread(&self) -> bool {
        let mut state = self.wait_for(|state| state.waiting.len() > state.idle);
        state.idle += usize::from(!state.closed);
        !state.closed
    }

    fn next(&self) -> Option<Call> {
        let mut state = self.wait_for(|state| !state.waiting.is_empty());
        state.idle = state.idle.saturating_sub(1);
        if state.closed { None } else { state.waiting.pop_front() }
    }

    fn done(&self, number: u64, result: Result<Bytes, String>) {
        let mut state = lock(&self.state);
        state.idle += 1;
        if let Some(answer) = state.open.remove(&number) {
            // A codec that has abandoned the record no longer listens.
            let _ = answer.try_send(result);
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.waiting.clear();
        state.open.clear();
        self.changed.notify_all();
    }
}

impl Degrade for Calls {
    fn name(&self) -> &str {
        &self.name
    }

    fn degrade(&self, record: &DataRecord, knobs: &[(&str, KnobValue)]) -> Result<Bytes, String> {
        let (answer, result) = sync_channel(1);
        {
            let mut state = lock(&self.state);
            if state.closed {
                return Err("its publisher is closed".into());
            }
            let number = state.next;
            state.next += 1;
            state.open.insert(number, answer);
            let knobs = named(knobs.iter().copied());
            let content_type = record.content_type.as_str().to_owned();
            state.waiting.push_back(Call { number, body: record.body.clone(), content_type, knobs });
            self.changed.notify_all();
        }
        result.recv().unwrap_or_else(|_| Err("its publisher is closed".into()))
    }
}
