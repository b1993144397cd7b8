//! Degrades data records by the knobs that their publisher declares (`docs/knobs-data.md`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | a stream's declared knobs ([`StreamKnobs`]), and how a record is degraded to a rung |
//! | `operator.rs` | the built-in operators |
//! | `json.rs`, `npy.rs` | the operators on JSON lists and on arrays |
//!
//! Everything here is a pure function of the record and the rung, except for the
//! publisher's own function. The codec runs it with a deadline (`crate::codec`).

mod json;
mod npy;
mod operator;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use mez_core::data::DataRecord;
use mez_core::setting::{DataKnobs, DeclareError, DeclaredKnobs, KnobValue};

pub use self::operator::{Key, Operator, OperatorKind};

/// A publisher's own function.
pub trait Degrade: Send + Sync {
    /// Its name in logs.
    fn name(&self) -> &str;

    /// Returns the degraded body of a record, of the same content type. `knobs` are all knobs of the rung with their values, in the declared order.
    ///
    /// # Errors
    /// Why the record cannot be degraded, in a few words.
    fn degrade(&self, record: &DataRecord, knobs: &[(&str, KnobValue)]) -> Result<Bytes, String>;
}

/// A knob that a publisher declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    /// Its name in rungs.
    pub name: String,
    /// Its values.
    pub values: Vec<KnobValue>,
    /// The operator that applies its values. `None`: the publisher's function applies them.
    pub operator: Option<Operator>,
}

/// Why a stream's knobs are rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamKnobsError {
    /// The knobs do not form valid rungs.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// A value is invalid for the operator.
    #[error("the knob {knob} has the value {value}, and {operator} takes {takes}")]
    Value {
        /// The knob.
        knob: String,
        /// The value.
        value: KnobValue,
        /// The operator.
        operator: &'static str,
        /// The values that the operator accepts.
        takes: &'static str,
    },
    /// The knob has a key, but its operator uses no value of a row.
    #[error(
        "the knob {knob} has a key, but {operator} does not read a value of a row; only threshold takes a key"
    )]
    Key {
        /// The knob.
        knob: String,
        /// The operator.
        operator: &'static str,
    },
    /// A knob has neither an operator nor a function.
    #[error("nothing applies the knob {knob}; give it an operator, or give a function that degrades records")]
    NoFunction {
        /// The knob.
        knob: String,
    },
    /// A function is given, but every knob has an operator.
    #[error(
        "the function {function} is given, but each knob already has an operator; leave out the function or an operator"
    )]
    NoKnob {
        /// The function.
        function: String,
    },
}

/// Why a record cannot be degraded to a rung.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DegradeError {
    /// The rung does not belong to the stream.
    #[error("{} is not a rung of this stream", .0.as_str())]
    OtherKnobs(DataKnobs),
    /// An operator cannot handle the record.
    #[error("the knob {knob} ({operator}) cannot be applied: {why}")]
    Operator {
        /// The knob.
        knob: String,
        /// The operator.
        operator: &'static str,
        /// The reason.
        why: String,
    },
    /// The function failed.
    #[error("the function {function} failed: {why}")]
    Function {
        /// The function.
        function: String,
        /// The error message of the function.
        why: String,
    },
    /// The result is larger than the original.
    #[error("the result has {bytes} bytes, the original record {of}; a degraded record must not be larger")]
    Grew {
        /// The size of the original body in bytes.
        of: usize,
        /// The size of the result in bytes.
        bytes: usize,
    },
    /// The result is empty.
    #[error("the result is empty; a record needs at least one byte")]
    Empty,
}

/// The knobs of a stream, with their operators and function.
#[derive(Clone)]
pub struct StreamKnobs {
    declared: DeclaredKnobs,
    /// One per knob, in the declared order.
    operators: Vec<Option<Operator>>,
    function: Option<Arc<dyn Degrade>>,
}

impl fmt::Debug for StreamKnobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_ref().map(|function| function.name());
        f.debug_struct("StreamKnobs")
            .field("declared", &self.declared)
            .field("operators", &self.operators)
            .field("function", &function)
            .finish()
    }
}

impl StreamKnobs {
    /// The knobs of a stream, in the order in which they are applied. `skips` are the allowed numbers of records to leave out after each sent one.
    ///
    /// # Errors
    /// [`StreamKnobsError`] names the knob and the remedy.
    pub fn new(
        knobs: Vec<Knob>,
        skips: Vec<u8>,
        function: Option<Arc<dyn Degrade>>,
    ) -> Result<Self, StreamKnobsError> {
        for Knob { name, values, operator } in &knobs {
            let Some(operator) = operator else {
                if function.is_none() {
                    return Err(StreamKnobsError::NoFunction { knob: name.clone() });
                }
                continue;
            };
            if operator.key.is_some() && operator.kind != OperatorKind::Threshold {
                return Err(StreamKnobsError::Key { knob: name.clone(), operator: operator.kind.name() });
            }
            if let Some(value) = values.iter().find(|value| !operator.kind.takes(**value)) {
                let (operator, takes) = (operator.kind.name(), operator.kind.what_it_takes());
                return Err(StreamKnobsError::Value { knob: name.clone(), value: *value, operator, takes });
            }
        }
        if let Some(function) = &function
            && knobs.iter().all(|knob| knob.operator.is_some())
        {
            return Err(StreamKnobsError::NoKnob { function: function.name().to_owned() });
        }
        let operators = knobs.iter().map(|knob| knob.operator.clone()).collect();
        let named = knobs.into_iter().map(|knob| (knob.name, knob.values)).collect();
        Ok(Self { declared: DeclaredKnobs::new(named, skips)?, operators, function })
    }

    /// The rungs of the stream.
    pub fn declared(&self) -> &DeclaredKnobs {
        &self.declared
    }

    /// The name of the function, if there is one.
    pub fn function(&self) -> Option<&str> {
        self.function.as_deref().map(Degrade::name)
    }

    /// The body of a record at a rung. The function is applied first, then the operators in the declared order.
    ///
    /// # Errors
    /// [`DegradeError`]. Then the record can only be sent as published.
    pub fn apply(&self, record: &DataRecord, knobs: &DataKnobs) -> Result<Bytes, DegradeError> {
        if !self.declared.has(knobs) {
            return Err(DegradeError::OtherKnobs(*knobs));
        }
        let mut record = record.clone();
        let of = record.body.len();
        if let Some(function) = &self.function {
            let values: Vec<(&str, KnobValue)> = knobs.iter().collect();
            record.body = function
                .degrade(&record, &values)
                .map_err(|why| DegradeError::Function { function: function.name().to_owned(), why })?;
            fits(&record.body, of)?;
        }
        let body = self.operate(&record, knobs)?;
        fits(&body, of)?;
        Ok(body)
    }

    /// Applies only the operators to a record.
    ///
    /// # Errors
    /// [`DegradeError::Operator`], or [`DegradeError::OtherKnobs`] if the rung does not belong to the stream.
    pub fn operate(&self, record: &DataRecord, knobs: &DataKnobs) -> Result<Bytes, DegradeError> {
        if !self.declared.has(knobs) {
            return Err(DegradeError::OtherKnobs(*knobs));
        }
        let mut body = record.body.clone();
        for ((name, value), operator) in knobs.iter().zip(&self.operators) {
            let Some(operator) = operator else { continue };
            body = operator.apply(&record.content_type, &body, value).map_err(|why| {
                DegradeError::Operator { knob: name.to_owned(), operator: operator.kind.name(), why }
            })?;
        }
        Ok(body)
    }
}

/// Returns an error if a body is empty, or larger than the original of `of` bytes.
fn fits(body: &Bytes, of: usize) -> Result<(), DegradeError> {
    match body.len() {
        0 => Err(DegradeError::Empty),
        bytes if bytes > of => Err(DegradeError::Grew { of, bytes }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Doubles;

    impl Degrade for Doubles {
        fn name(&self) -> &str {
            "doubles"
        }

        /// Repeats the body `times` times, and fails below 0.
        fn degrade(&self, record: &DataRecord, knobs: &[(&str, KnobValue)]) -> Result<Bytes, String> {
            let times = knobs.iter().find(|(name, _)| *name == "times").expect("it is declared").1;
            let times = times.whole().ok_or("planned")?;
            Ok(record.body.repeat(times as usize).into())
        }
    }

    fn value(number: f64) -> KnobValue {
        KnobValue::from_f64(number).expect("a value")
    }

    fn knob(name: &str, values: &[f64], kind: Option<OperatorKind>) -> Knob {
        let operator = kind.map(|kind| Operator { kind, key: None });
        Knob { name: name.into(), values: values.iter().copied().map(value).collect(), operator }
    }

    fn record(body: &str) -> DataRecord {
        let content_type = "application/json".parse().expect("a content type");
        DataRecord { content_type, of: None, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    fn knobs(named: &[(&str, f64)]) -> DataKnobs {
        DataKnobs::new(named.iter().map(|(name, number)| (*name, value(*number)))).expect("knobs")
    }

    #[test]
    fn the_function_comes_first_and_then_the_operators_as_declared() {
        let stream = StreamKnobs::new(
            vec![
                knob("every", &[2.0], Some(OperatorKind::Downsample)),
                knob("times", &[1.0, 2.0, 0.0, -1.0], None),
                knob("top", &[2.0], Some(OperatorKind::Head)),
            ],
            vec![],
            Some(Arc::new(Doubles)),
        )
        .unwrap();
        let at = |times: f64| {
            let rung = knobs(&[("every", 2.0), ("times", times), ("top", 2.0)]);
            stream.apply(&record("[1,2,3,4,5,6]"), &rung)
        };
        assert_eq!(at(1.0).unwrap(), "[1,3]");
        assert_eq!(at(2.0), Err(DegradeError::Grew { of: 13, bytes: 26 }));
        assert_eq!(at(0.0), Err(DegradeError::Empty));
        assert_eq!(at(-1.0).unwrap_err().to_string(), "the function doubles failed: planned");
        assert!(matches!(at(3.0), Err(DegradeError::OtherKnobs(_))));
    }

    #[test]
    fn knobs_without_sense_are_refused() {
        let refused = |knobs: Vec<Knob>, function: bool| {
            let function = function.then(|| Arc::new(Doubles) as Arc<dyn Degrade>);
            StreamKnobs::new(knobs, vec![], function).unwrap_err().to_string()
        };
        assert!(refused(vec![knob("top", &[1.0], None)], false).contains("nothing applies the knob top"));
        assert!(refused(vec![knob("top", &[1.0], Some(OperatorKind::Head))], true).contains("doubles"));
        assert!(refused(vec![knob("top", &[0.5], Some(OperatorKind::Head))], false).contains("0.5"));
        assert!(
            refused(vec![knob("every", &[0.0], Some(OperatorKind::Downsample))], false).contains("every")
        );
        assert!(refused(vec![knob("p", &[20.0], Some(OperatorKind::Precision))], false).contains("takes"));
        let keyed = Knob {
            operator: Some(Operator { kind: OperatorKind::Head, key: Some(Key::Column(1)) }),
            ..knob("top", &[1.0], None)
        };
        assert!(refused(vec![keyed], false).contains("key"));
    }
}
