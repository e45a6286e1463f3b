//! What we mean by tidy, enforced: the rules that neither the compiler nor clippy knows.
//!
//! Each rule lists everything that breaks it, by file and line. An exception stands in a list, with
//! its reason.

mod boundaries;
mod code;
mod english;
mod layers;
mod project;
mod seam;
mod workspace;
