//! A form of JSON values that is a fraction as long: result files repeat few keys and names.
//!
//! An object is an array of the number of its list of keys and of its values. Any other array
//! begins with -1. A string is the number of a string, in base 36. Numbers that are not whole have
//! five digits.

use std::collections::HashMap;

use serde_json::{Number, Value, json};

/// The lists of keys and the strings, each once, with their numbers.
#[derive(Default)]
struct Known<T> {
    all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + std::hash::Hash> Known<T> {
    fn number(&mut self, one: T) -> usize {
        if let Some(&number) = self.numbers.get(&one) {
            return number;
        }
        let number = self.all.len();
        self.all.push(one.clone());
        self.numbers.insert(one, number);
        number
    }
}

#[derive(Default)]
struct Packer {
    keys: Known<Vec<String>>,
    strings: Known<String>,
}

/// Packs a value: an object with the lists of keys, the strings, and the packed value.
pub(super) fn pack(value: &Value) -> Value {
    let mut packer = Packer::default();
    let packed = packer.pack(value);
    json!({ "keys": packer.keys.all, "strings": packer.strings.all, "value": packed })
}

impl Packer {
    fn pack(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let keys = self.keys.number(members.keys().cloned().collect());
                let values = members.values().map(|member| self.pack(member));
                Value::Array(std::iter::once(keys.into()).chain(values).collect())
            }
            Value::Array(members) => {
                let members = members.iter().map(|member| self.pack(member));
                Value::Array(std::iter::once((-1).into()).chain(members).collect())
            }
            Value::String(text) => Value::from(base_36(self.strings.number(text.clone()))),
            Value::Number(number) => Value::Number(shorter(number)),
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }
}

/// Returns a number in base 36.
fn base_36(mut number: usize) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((number % 36) as u32, 36).expect("a digit of base 36"));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// The largest whole number that every reader of JSON keeps.
const WHOLE_MAX: f64 = 9e15;

/// Returns a number with five digits; counts stay whole.
fn shorter(number: &Number) -> Number {
    let Some(value) = number.as_f64().filter(|_| number.is_f64()) else { return number.clone() };
    let short: f64 = format!("{value:.4e}").parse().expect("it was written as a number");
    if short.fract() == 0.0 && short.abs() < WHOLE_MAX {
        return Number::from(short as i64);
    }
    Number::from_f64(short).expect("it is as finite as before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names_are_there_once() {
        let value = json!([{ "a": "x", "b": [1, 0.123_456_789] }, { "a": "x", "b": [] }, null, true, "y"]);
        let expect = json!({
            "keys": [["a", "b"]],
            "strings": ["x", "y"],
            "value": [-1, [0, "0", [-1, 1, 0.123_46]], [0, "0", [-1]], null, true, "1"],
        });
        assert_eq!(pack(&value), expect);
        assert_eq!((base_36(35), base_36(36), base_36(1_296)), ("z".to_owned(), "10".to_owned(), "100".to_owned()));
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(shorter(&Number::from_f64(3.0).unwrap()).to_string(), "3");
        assert_eq!(shorter(&Number::from(u64::MAX)).to_string(), u64::MAX.to_string());
        assert_eq!(shorter(&Number::from_f64(1.234_567_8e-9).unwrap()).to_string(), "1.2346e-9");
    }
}
