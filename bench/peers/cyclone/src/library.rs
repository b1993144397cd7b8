//! The functions of Cyclone DDS 11 that this program calls, and their structures. The library is loaded from the package
//! `cyclonedds`, like in the bridge (`python/mez/bridge/dds/library.py`), so that nothing has to be installed.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libloading::Library;

const DATA: c_int = 2;
const ANY_STATE: u32 = 0x7F;
const TAKE_MAX: usize = 16;
const RELIABLE: c_int = 1;
const KEEP_LAST: c_int = 0;
/// The number of samples that are kept for retransmission.
const DEPTH: c_int = 10;
const FOREVER_NS: i64 = i64::MAX;
const WAIT_NS: i64 = 100_000_000;

/// A topic and its type.
pub struct Plan<'a> {
    pub topic: &'a str,
    pub kind: &'a str,
    /// Bytes in memory, alignment, and the number of instructions of the program.
    pub shape: [u32; 3],
    pub words: Vec<u32>,
}

#[repr(C)]
struct Bytes {
    data: *const c_void,
    size: u32,
}

#[repr(C)]
struct Descriptor {
    size: u32,
    align: u32,
    flags: u32,
    key_count: u32,
    name: *const c_char,
    keys: *const c_void,
    count: u32,
    words: *const u32,
    about: *const c_char,
    information: Bytes,
    mapping: Bytes,
    representations: u32,
}

#[repr(C)]
struct Iovec {
    base: *const c_void,
    size: usize,
}

/// Information about a sample. Only `is_valid` is used: whether the sample has data.
#[repr(C)]
#[derive(Clone, Copy)]
struct SampleInfo {
    states: [u32; 3],
    is_valid: bool,
    rest: [u64; 6],
}

/// A participant in a domain, until the process ends.
pub struct Domain {
    library: Arc<Library>,
    participant: i32,
}

/// Calls a function of the library.
///
/// The types of the arguments are those of `library.py`, which is tested against the same library.
macro_rules! call {
    ($library:expr, $name:literal ($($argument:expr => $kind:ty),*) -> $result:ty) => {{
        // SAFETY: the function has these arguments in version 11, and pointers live as long as the call.
        unsafe {
            let function = $library
                .get::<unsafe extern "C" fn($($kind),*) -> $result>($name)
                .map_err(|error| error.to_string())?;
            function($($argument),*)
        }
    }};
}

impl Domain {
    pub fn enter(path: &str, number: u32, config: &str) -> Result<Self, String> {
        // SAFETY: loading the library runs nothing but its own initialisation.
        let library = Arc::new(unsafe { Library::new(path) }.map_err(|error| error.to_string())?);
        let config = text(config)?;
        let made =
            call!(library, b"dds_create_domain"(number => u32, config.as_ptr() => *const c_char) -> i32);
        done("domain", made)?;
        let made = call!(library, b"dds_create_participant"(
            number => u32, null() => *const c_void, null() => *const c_void) -> i32);
        let participant = done("participant", made)?;
        Ok(Self { library, participant })
    }

    fn topic(&self, plan: &Plan<'_>) -> Result<i32, String> {
        let (kind, topic) = (text(plan.kind)?, text(plan.topic)?);
        let [size, align, count] = plan.shape;
        let nothing = || Bytes { data: null(), size: 0 };
        let described = Descriptor {
            size,
            align,
            flags: 0,
            key_count: 0,
            name: kind.as_ptr(),
            keys: null(),
            count,
            words: plan.words.as_ptr(),
            about: c"".as_ptr(),
            information: nothing(),
            mapping: nothing(),
            representations: 0,
        };
        let made = call!(self.library, b"dds_create_topic"(
            self.participant => i32, &raw const described => *const Descriptor, topic.as_ptr() => *const c_char,
            null() => *const c_void, null() => *const c_void) -> i32);
        done("topic", made)
    }

    /// Reliable, with a short history: a write waits until readers have confirmed enough.
    fn qos(&self) -> Result<*mut c_void, String> {
        let library = &self.library;
        let qos = call!(library, b"dds_create_qos"() -> *mut c_void);
        call!(library, b"dds_qset_reliability"(qos => *mut c_void, RELIABLE => c_int, FOREVER_NS => i64) -> ());
        call!(library, b"dds_qset_history"(qos => *mut c_void, KEEP_LAST => c_int, DEPTH => c_int) -> ());
        let plain = [0_i16];
        call!(library, b"dds_qset_data_representation"(
            qos => *mut c_void, 1 => u32, plain.as_ptr() => *const i16) -> ());
        Ok(qos)
    }

    pub fn writer(&self, plan: &Plan<'_>) -> Result<Writer, String> {
        let (topic, qos) = (self.topic(plan)?, self.qos()?);
        let made = call!(self.library, b"dds_create_writer"(
            self.participant => i32, topic => i32, qos => *const c_void, null() => *const c_void) -> i32);
        let entity = done("writer", made)?;
        let mut kind: *const c_void = null();
        let found = call!(self.library, b"dds_get_entity_sertype"(
            entity => i32, &raw mut kind => *mut *const c_void) -> i32);
        done("type", found)?;
        Ok(Writer { library: self.library.clone(), entity, kind })
    }

    pub fn reader(&self, plan: &Plan<'_>) -> Result<Reader, String> {
        let (topic, qos) = (self.topic(plan)?, self.qos()?);
        let library = &self.library;
        let made = call!(library, b"dds_create_reader"(
            self.participant => i32, topic => i32, qos => *const c_void, null() => *const c_void) -> i32);
        let entity = done("reader", made)?;
        let waiting = done("waitset", call!(library, b"dds_create_waitset"(self.participant => i32) -> i32))?;
        let condition = call!(library, b"dds_create_readcondition"(entity => i32, ANY_STATE => u32) -> i32);
        let attached = call!(library, b"dds_waitset_attach"(
            waiting => i32, done("condition", condition)? => i32, null() => *const c_void) -> i32);
        done("condition", attached)?;
        Ok(Reader { library: library.clone(), entity, waiting })
    }
}

/// Writes samples.
pub struct Writer {
    library: Arc<Library>,
    entity: i32,
    kind: *const c_void,
}

impl Writer {
    /// Writes a message whose last field is the frame.
    pub fn write(&self, head: &[u8], frame: &[u8], padding: usize) -> Result<(), String> {
        let padded = [0_u8; 4];
        let part = |of: &[u8]| Iovec { base: of.as_ptr().cast(), size: of.len() };
        let parts = [part(head), part(frame), part(&padded[..padding])];
        let size: usize = parts.iter().map(|part| part.size).sum();
        let sample = call!(self.library, b"ddsi_serdata_from_ser_iov"(
            self.kind => *const c_void, DATA => c_int, parts.len() => usize,
            parts.as_ptr() => *const Iovec, size => usize) -> *mut c_void);
        if sample.is_null() {
            return Err("a sample is not of its type".into());
        }
        let code = call!(self.library, b"dds_writecdr"(self.entity => i32, sample => *mut c_void) -> i32);
        done("write", code).map(|_| ())
    }
}

/// Reads samples.
pub struct Reader {
    library: Arc<Library>,
    entity: i32,
    waiting: i32,
}

impl Reader {
    /// Waits for samples for a moment, and shows each.
    pub fn take(&self, mut show: impl FnMut(&[u8])) -> Result<(), String> {
        let library = &self.library;
        let code = call!(library, b"dds_waitset_wait"(
            self.waiting => i32, null_mut() => *mut c_void, 0 => usize, WAIT_NS => i64) -> i32);
        done("wait", code)?;
        let mut taken: [*mut c_void; TAKE_MAX] = [null_mut(); TAKE_MAX];
        let mut known = [SampleInfo { states: [0; 3], is_valid: false, rest: [0; 6] }; TAKE_MAX];
        let count = call!(library, b"dds_takecdr"(
            self.entity => i32, taken.as_mut_ptr() => *mut *mut c_void, TAKE_MAX as u32 => u32,
            known.as_mut_ptr() => *mut SampleInfo, ANY_STATE => u32) -> i32);
        for at in 0..done("take", count)? as usize {
            if known[at].is_valid {
                let size = call!(library, b"ddsi_serdata_size"(taken[at] => *mut c_void) -> u32) as usize;
                let mut place = Iovec { base: null(), size: 0 };
                let held = call!(library, b"ddsi_serdata_to_ser_ref"(
                    taken[at] => *mut c_void, 0 => usize, size => usize, &raw mut place => *mut Iovec) -> *mut c_void);
                // SAFETY: the library lends this memory until it is given back below.
                show(unsafe { std::slice::from_raw_parts(place.base.cast(), place.size) });
                call!(library, b"ddsi_serdata_to_ser_unref"(
                    held => *mut c_void, &raw const place => *const Iovec) -> ());
            }
            call!(library, b"ddsi_serdata_unref"(taken[at] => *mut c_void) -> ());
        }
        Ok(())
    }
}

fn text(of: &str) -> Result<CString, String> {
    CString::new(of).map_err(|error| error.to_string())
}

fn done(what: &str, code: i32) -> Result<i32, String> {
    if code < 0 { Err(format!("{what}: error {code} of the library")) } else { Ok(code) }
}
