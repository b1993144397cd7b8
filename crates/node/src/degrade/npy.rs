//! Operators on arrays in NumPy's `.npy` format, versions 1 to 3
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>). Rows are along the first axis.

use bytes::Bytes;

use super::Key;

/// The first bytes of a file.
const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The alignment of the numbers in a file.
const ALIGNMENT: usize = 64;

/// A parsed array.
struct Array<'a> {
    /// NumPy's name of the element type: byte order, kind, and bytes per element (for text: characters).
    descr: &'a str,
    /// Bytes of an element.
    element: usize,
    /// Elements along each axis; at least one axis.
    shape: Vec<usize>,
    /// The bytes of the elements, row by row.
    numbers: &'a [u8],
}

/// The first `most` rows.
pub(super) fn head(body: &Bytes, most: usize) -> Result<Bytes, String> {
    let array = Array::read(body)?;
    if most >= array.shape[0] {
        return Ok(body.clone());
    }
    Ok(array.with(array.descr, most, &array.numbers[..most * array.row_bytes()]))
}

/// Every `every`th row, beginning with the first.
pub(super) fn every(body: &Bytes, every: usize) -> Result<Bytes, String> {
    let array = Array::read(body)?;
    if every <= 1 {
        return Ok(body.clone());
    }
    array.only(body, |row| Ok(row.is_multiple_of(every)))
}

/// The rows whose value is at least `least`.
pub(super) fn at_least(body: &Bytes, key: Option<&Key>, least: f64) -> Result<Bytes, String> {
    let array = Array::read(body)?;
    let column = match (key, array.shape.as_slice()) {
        (None, [_]) => 0,
        (None, _) => return Err("it has more than one axis; give a key that says which column counts".into()),
        (Some(Key::Column(column)), [_, columns]) if column < columns => *column,
        (Some(Key::Column(column)), shape) => {
            return Err(format!("an array of shape {shape:?} has no column {column}"));
        }
        (Some(Key::Member(name)), _) => {
            return Err(format!("columns of an array have numbers; {name:?} is not a number"));
        }
    };
    array.only(body, |row| {
        let begin = row * array.row_bytes() + column * array.element;
        Ok(number(array.descr, &array.numbers[begin..begin + array.element])? >= least)
    })
}

/// The same floats with at most `bits` bits each.
pub(super) fn narrowed(body: &Bytes, bits: usize) -> Result<Bytes, String> {
    let array = Array::read(body)?;
    if !matches!(bits, 16 | 32 | 64) {
        return Err(format!("{bits} is for JSON; elements of arrays have 16, 32 or 64 bits"));
    }
    if !array.descr.contains('f') {
        return Err(format!("its elements are {}, not floats", array.descr));
    }
    if array.element * 8 <= bits {
        return Ok(body.clone());
    }
    let mut narrow = Vec::with_capacity(array.numbers.len() * bits / 8 / array.element);
    for element in array.numbers.chunks_exact(array.element) {
        let value = number(array.descr, element)?;
        match bits {
            16 => narrow.extend_from_slice(&half(value as f32).to_le_bytes()),
            _ => narrow.extend_from_slice(&(value as f32).to_le_bytes()),
        }
    }
    Ok(array.with(if bits == 16 { "<f2" } else { "<f4" }, array.shape[0], &narrow))
}

impl<'a> Array<'a> {
    fn read(body: &'a [u8]) -> Result<Self, String> {
        let none = || "it is not a NumPy array".to_owned();
        let rest = body.strip_prefix(MAGIC).ok_or_else(none)?;
        let (version, rest) = rest.split_at_checked(2).ok_or_else(none)?;
        let (length, rest) = match version[0] {
            1 => rest
                .split_first_chunk()
                .map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
            2 | 3 => {
                rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest))
            }
            _ => None,
        }
        .ok_or_else(none)?;
        let (header, numbers) =
            rest.split_at_checked(length).filter(|_| length <= HEADER_BYTES_MAX).ok_or_else(none)?;
        let header = std::str::from_utf8(header).map_err(|_| none())?;
        let descr = field(header, "descr")
            .and_then(|value| value.strip_prefix(['\'', '"'])?.split(['\'', '"']).next())
            .ok_or("its elements have fields; send one number for each element, or give a function")?;
        let element =
            element_bytes(descr).ok_or_else(|| format!("the element type {descr} is not supported"))?;
        let by_columns = field(header, "fortran_order").is_some_and(|value| value.starts_with("True"));
        let shape = field(header, "shape").and_then(|value| value.strip_prefix('(')?.split(')').next());
        let shape = shape.ok_or_else(none)?.split(',').map(str::trim).filter(|side| !side.is_empty());
        let shape: Vec<usize> = shape.map(str::parse).collect::<Result<_, _>>().map_err(|_| none())?;
        if shape.is_empty() {
            return Err("it is a single number and has no rows".into());
        }
        if by_columns && shape.len() > 1 {
            return Err("it is in column order (Fortran); send numpy.ascontiguousarray(array)".into());
        }
        let bytes = shape.iter().try_fold(element, |bytes, side| bytes.checked_mul(*side));
        if bytes != Some(numbers.len()) {
            return Err(format!(
                "{} bytes do not fit an array of shape {shape:?} and type {descr}",
                numbers.len()
            ));
        }
        Ok(Self { descr, element, shape, numbers })
    }

    fn row_bytes(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.element
    }

    /// The wanted rows. `body` is the whole array, which is returned if all rows are wanted.
    fn only(&self, body: &Bytes, is_wanted: impl Fn(usize) -> Result<bool, String>) -> Result<Bytes, String> {
        let row_bytes = self.row_bytes();
        let (mut kept, mut rows) = (Vec::new(), 0);
        for row in 0..self.shape[0] {
            if is_wanted(row)? {
                kept.extend_from_slice(&self.numbers[row * row_bytes..(row + 1) * row_bytes]);
                rows += 1;
            }
        }
        Ok(if rows == self.shape[0] { body.clone() } else { self.with(self.descr, rows, &kept) })
    }

    /// An array of the same shape, but with `rows` rows.
    fn with(&self, descr: &str, rows: usize, numbers: &[u8]) -> Bytes {
        let mut shape = format!("({rows},");
        for side in &self.shape[1..] {
            shape.push_str(&format!(" {side},"));
        }
        if self.shape.len() > 1 {
            shape.pop();
        }
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}), }}");
        let before = MAGIC.len() + 2 + 2;
        let whole = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
        header.extend(std::iter::repeat_n(' ', whole - before - header.len() - 1));
        header.push('\n');
        let mut out = Vec::with_capacity(whole + numbers.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[1, 0]);
        // A shape from a header of at most 64 KiB fits here: it has no more axes, and no longer numbers.
        out.extend_from_slice(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(numbers);
        out.into()
    }
}

/// The text after the name of a header's field.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let behind = ['\'', '"'].into_iter().find_map(|quote| {
        let quoted = format!("{quote}{name}{quote}");
        header.find(&quoted).map(|at| &header[at + quoted.len()..])
    })?;
    Some(behind.trim_start().strip_prefix(':')?.trim_start())
}

/// The bytes per element of a type: eight for `<f8`.
fn element_bytes(descr: &str) -> Option<usize> {
    let plain = descr.trim_start_matches(['<', '>', '|', '=']);
    let kind = plain.chars().next().filter(char::is_ascii_alphabetic)?;
    let digits: &str = plain[1..].split('[').next()?;
    let count: usize = digits.parse().ok().filter(|count| (1..=1 << 20).contains(count))?;
    // Text has four bytes per character.
    if kind == 'U' { count.checked_mul(4) } else { (kind != 'O').then_some(count) }
}

/// An element as a number.
fn number(descr: &str, element: &[u8]) -> Result<f64, String> {
    let plain = descr.trim_start_matches(['<', '>', '|', '=']);
    let mut little = [0u8; 8];
    let bytes =
        little.get_mut(..element.len()).ok_or_else(|| format!("elements of type {descr} are not numbers"))?;
    bytes.copy_from_slice(element);
    if descr.starts_with('>') {
        bytes.reverse();
    }
    let bits = u64::from_le_bytes(little);
    Ok(match plain {
        "f8" => f64::from_bits(bits),
        "f4" => f64::from(f32::from_bits(bits as u32)),
        "f2" => whole_of_half(bits as u16),
        "i1" => f64::from(bits as i8),
        "i2" => f64::from(bits as i16),
        "i4" => f64::from(bits as i32),
        "i8" => bits as i64 as f64,
        "u1" | "u2" | "u4" | "u8" | "b1" => bits as f64,
        _ => return Err(format!("elements of type {descr} are not numbers")),
    })
}

/// Converts a 16-bit float (IEEE 754 binary16) to 64 bits.
fn whole_of_half(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if sign == 1 { -size } else { size }
}

/// Rounds to the nearest 16-bit float (IEEE 754 binary16), and to the even one if two are equally near.
fn half(value: f32) -> u16 {
    let sign = ((value.to_bits() >> 16) & 0x8000) as u16;
    let size = f64::from(value.abs());
    if value.is_nan() {
        return sign | 0x7e00;
    }
    // From halfway between the largest value and the next step, the result is infinite.
    if size >= 65_520.0 {
        return sign | 0x7c00;
    }
    let exponent = if size < 2f64.powi(-14) { -14 } else { size.log2().floor() as i32 };
    let steps = size * 2f64.powi(10 - exponent);
    let floor = steps.floor();
    let up = steps - floor > 0.5 || steps - floor == 0.5 && floor % 2.0 == 1.0;
    // A carry out of the fraction correctly raises the exponent.
    let fraction = floor as u16 + u16::from(up);
    sign + fraction + ((exponent + 14) as u16) * 1024
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An array of 64-bit floats, as NumPy writes it.
    fn array(shape: &str, values: &[f64]) -> Bytes {
        let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
        while (header.len() + 11) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut out = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        out.into()
    }

    fn values(body: &Bytes) -> (Vec<usize>, Vec<f64>) {
        let array = Array::read(body).unwrap();
        let numbers = array.numbers.chunks_exact(array.element);
        (array.shape.clone(), numbers.map(|element| number(array.descr, element).unwrap()).collect())
    }

    #[test]
    fn rows_lie_along_the_first_axis() {
        let body = array("(3, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(values(&head(&body, 2).unwrap()), (vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(head(&body, 3).unwrap(), body);
        assert_eq!(values(&every(&body, 2).unwrap()), (vec![2, 2], vec![1.0, 2.0, 5.0, 6.0]));
        let above = at_least(&body, Some(&Key::Column(1)), 4.0).unwrap();
        assert_eq!(values(&above), (vec![2, 2], vec![3.0, 4.0, 5.0, 6.0]));
        at_least(&body, None, 4.0).unwrap_err();
        at_least(&body, Some(&Key::Column(2)), 4.0).unwrap_err();
        at_least(&body, Some(&Key::Member("x".into())), 4.0).unwrap_err();
        let line = array("(4,)", &[1.0, f64::NAN, 3.0, -4.0]);
        assert_eq!(values(&at_least(&line, None, 1.0).unwrap()), (vec![2], vec![1.0, 3.0]));
        assert_eq!(values(&head(&line, 0).unwrap()), (vec![0], vec![]));
    }

    #[test]
    fn floats_are_narrowed_and_never_widened() {
        let body = array("(2, 2)", &[1.0, -0.1, 65_504.0, 1e9]);
        let (shape, narrow) = values(&narrowed(&body, 32).unwrap());
        assert_eq!((shape, narrow[1]), (vec![2, 2], f64::from(-0.1f32)));
        let (_, half) = values(&narrowed(&body, 16).unwrap());
        assert_eq!(half, [1.0, -0.099_975_585_937_5, 65_504.0, f64::INFINITY]);
        assert_eq!(narrowed(&body, 64).unwrap(), body);
        let narrow = narrowed(&body, 16).unwrap();
        assert_eq!(narrowed(&narrow, 32).unwrap(), narrow);
        narrowed(&body, 8).unwrap_err();
    }

    #[test]
    fn what_is_no_array_or_claims_another_size_is_refused() {
        let body = array("(3, 2)", &[0.0; 6]);
        for cut in [0, 5, 7, 9, 20, body.len() - 1] {
            head(&body.slice(..cut), 1).unwrap_err();
        }
        for (from, to) in [
            ("'<f8'", "'|O8'"),
            ("'<f8'", "[['a'"),
            ("False", "True "),
            ("(3, 2)", "()    "),
            ("(3, 2)", "(-1,2)"),
            ("(3, 2)", "(3, 9)"),
        ] {
            let header = String::from_utf8_lossy(&body[10..128]).replace(from, to);
            let altered = [&body[..10], header.as_bytes(), &body[128..]].concat();
            assert_eq!(altered.len(), body.len(), "{to}");
            head(&altered.into(), 1).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn halves_are_the_nearest(bits in 0u16..0x7c00, nudge in -0.49f64..0.49) {
            let value = whole_of_half(bits);
            prop_assert_eq!(half(value as f32), bits);
            // Between neighbours: less than half a step away from it.
            let step = whole_of_half(bits + 1) - value;
            if step.is_finite() {
                prop_assert_eq!(half((value + nudge.max(0.0) * step) as f32), bits);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes: Vec<u8>, header in ".{0,80}", n in 0usize..70) {
            for body in [bytes.clone(), {
                bytes = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &bytes].concat();
                bytes
            }] {
                let body = Bytes::from(body);
                let _ = (head(&body, n), every(&body, n), narrowed(&body, n), at_least(&body, None, 1.0));
            }
        }
    }
}
