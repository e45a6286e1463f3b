//! The attributes `main` and `test` of the async runtime `hitm`.
//!
//! An attribute removes `async` from the function and wraps the body: the body becomes the argument
//! of `hitm::start::main` or `hitm::start::test`. Tokens keep their places, so errors of the body
//! are shown in the body.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Runs an async `main` function on a new runtime: see `hitm::main`.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expand("main", arguments, function)
}

/// Makes an async function a test that runs on a new runtime: see `hitm::test`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    expand("test", arguments, function)
}

/// The place and the text of an error.
struct Refused(Span, String);

fn expand(start: &str, arguments: TokenStream, function: TokenStream) -> TokenStream {
    let read = cpus(start, arguments).and_then(|cpus| rewrite(start, cpus, function));
    read.unwrap_or_else(|Refused(span, text)| refuse(span, &text))
}

/// Reads the arguments: nothing, or `cpus = N`.
fn cpus(start: &str, arguments: TokenStream) -> Result<Option<Literal>, Refused> {
    let tokens: Vec<TokenTree> = arguments.into_iter().collect();
    match tokens.as_slice() {
        [] => Ok(None),
        [TokenTree::Ident(name), TokenTree::Punct(equals), TokenTree::Literal(number)]
            if name.to_string() == "cpus" && equals.as_char() == '=' =>
        {
            let digits = number.to_string();
            if digits.parse::<usize>().is_ok_and(|cpus| cpus > 0) {
                return Ok(Some(number.clone()));
            }
            Err(Refused(number.span(), format!("`cpus` is a number above 0, not `{digits}`")))
        }
        [first, ..] => {
            Err(Refused(first.span(), format!("the argument of `#[hitm::{start}]` is `cpus = N`, a number above 0")))
        }
    }
}

/// Removes `async` and wraps the body.
fn rewrite(start: &str, cpus: Option<Literal>, function: TokenStream) -> Result<TokenStream, Refused> {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let is_word = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let place = tokens.first().map_or_else(Span::call_site, TokenTree::span);
    let no_async = || Refused(place, format!("`#[hitm::{start}]` is for an `async fn`"));
    let asynchronous = tokens.iter().position(|token| is_word(token, "async")).ok_or_else(no_async)?;
    let name = tokens.iter().position(|token| is_word(token, "fn")).ok_or_else(no_async)?;
    if asynchronous > name {
        return Err(no_async());
    }
    match tokens.get(name + 2) {
        Some(TokenTree::Group(arguments)) if !arguments.stream().is_empty() => {
            return Err(Refused(arguments.span(), format!("a function with `#[hitm::{start}]` has no arguments")));
        }
        _ => {}
    }
    let body = match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => return Err(Refused(place, "the function has no body".to_owned())),
    };
    tokens.remove(asynchronous);
    let cpus = match cpus {
        Some(cpus) => format!("::core::option::Option::Some({cpus})"),
        None => "::core::option::Option::None".to_owned(),
    };
    let mut call: TokenStream = format!("::hitm::start::{start}").parse().expect("a path");
    let mut inside: TokenStream = format!("{cpus}, async").parse().expect("an argument");
    inside.extend([TokenTree::Group(body.clone())]);
    let mut arguments = Group::new(Delimiter::Parenthesis, inside);
    arguments.set_span(body.span());
    call.extend([TokenTree::Group(arguments)]);
    let mut block = Group::new(Delimiter::Brace, call);
    block.set_span(body.span());
    let attribute = if start == "test" { "#[::core::prelude::v1::test]" } else { "" };
    let mut expanded: TokenStream = attribute.parse().expect("an attribute");
    expanded.extend(tokens);
    expanded.extend([TokenTree::Group(block)]);
    Ok(expanded)
}

/// Returns `::core::compile_error!(text)` at `span`.
fn refuse(span: Span, text: &str) -> TokenStream {
    let mut argument = Literal::string(text);
    argument.set_span(span);
    let mut arguments = Group::new(Delimiter::Brace, TokenStream::from(TokenTree::from(argument)));
    arguments.set_span(span);
    let mut error = TokenStream::from(TokenTree::from(Ident::new("compile_error", span)));
    let mut mark = Punct::new('!', Spacing::Alone);
    mark.set_span(span);
    error.extend([TokenTree::from(mark), TokenTree::from(arguments)]);
    error
}
