//! The modules of a crate: which files they are, what they define, what they name.
//!
//! A file with its inline modules is one module. What stands under `#[cfg(test)]` is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, UseTree, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::files::read;

/// A crate that has been read.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// File modules; parents stand before their children.
    pub(crate) modules: Vec<Module>,
    /// Who names what of whom, re-exports followed to where an item is defined.
    pub(crate) arrows: BTreeMap<(usize, usize), BTreeSet<String>>,
    scopes: Vec<Scope>,
}

/// A file.
#[derive(Debug)]
pub(crate) struct Module {
    /// `session::listing`; `lib` and `main` for roots.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// `None` for roots.
    pub(crate) parent: Option<usize>,
    /// Types and traits that it defines, with their lines.
    pub(crate) types: Vec<(String, usize)>,
    /// Lines under `#[cfg(test)]`, first and last.
    pub(crate) tests: Vec<(usize, usize)>,
}

/// A module of the language: a file, or an inline module of one.
#[derive(Debug)]
struct Scope {
    module: usize,
    parent: Option<usize>,
    root: usize,
    names: BTreeMap<String, Name>,
    /// `use a::*`.
    globs: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
enum Name {
    Item,
    Scope(usize),
    /// `use`; whether it hands the item on to others.
    Alias(Vec<String>, bool),
}

enum Found {
    /// An item of this scope, by its name there.
    Item(usize, String),
    Scope(usize),
}

/// What a file names: in which scope, and the path as it is written.
type Names = Vec<(usize, Vec<String>)>;

/// Names that have been looked for in scopes: aliases may lead in a circle.
type Seen = BTreeSet<(usize, String)>;

/// Reads a crate.
///
/// # Errors
///
/// A file cannot be read, or is no Rust.
pub(crate) fn read_crate(folder: &Path) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let mut named = Names::new();
    let mut roots = Vec::new();
    for root in ["lib", "main"] {
        let file = folder.join("src").join(format!("{root}.rs"));
        if file.is_file() {
            roots.push((root, tree.scopes.len()));
            tree.read_file(&file, root, None, &mut named)?;
        }
    }
    let library = roots.iter().find(|(root, _)| *root == "lib");
    let library = library.map(|(_, scope)| (library_name(folder), *scope));
    tree.draw(
        &named,
        library.as_ref().map(|(name, scope)| (&**name, *scope)),
    );
    Ok(tree)
}

/// What other crates call the library, if its manifest says it plainly.
fn library_name(folder: &Path) -> String {
    let manifest = read(&folder.join("Cargo.toml")).unwrap_or_default();
    let name = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = "));
    name.unwrap_or_default().trim_matches('"').replace('-', "_")
}

impl Tree {
    fn read_file(
        &mut self,
        file: &Path,
        name: &str,
        parent: Option<usize>,
        named: &mut Names,
    ) -> Result<usize, String> {
        let text = read(file)?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        let module = self.modules.len();
        self.modules.push(Module {
            name: name.to_owned(),
            file: file.to_owned(),
            parent: parent.map(|scope| self.scopes[scope].module),
            types: Vec::new(),
            tests: Vec::new(),
        });
        let scope = self.scope(module, parent);
        self.read_items(
            &parsed.items,
            scope,
            &folder_of(file, parent.is_none()),
            named,
        )?;
        Ok(scope)
    }

    fn scope(&mut self, module: usize, parent: Option<usize>) -> usize {
        let scope = self.scopes.len();
        self.scopes.push(Scope {
            module,
            parent,
            root: parent.map_or(scope, |parent| self.scopes[parent].root),
            names: BTreeMap::new(),
            globs: Vec::new(),
        });
        scope
    }

    /// `folder` holds the files of child modules.
    fn read_items(
        &mut self,
        items: &[Item],
        scope: usize,
        folder: &Path,
        named: &mut Names,
    ) -> Result<(), String> {
        for item in items {
            let module = self.scopes[scope].module;
            if is_test(attributes(item)) {
                let (first, last) = (item.span().start().line, item.span().end().line);
                self.modules[module].tests.push((first, last));
                continue;
            }
            match item {
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    let below = folder.join(&name);
                    let child = if let Some((_, items)) = &item.content {
                        let child = self.scope(module, Some(scope));
                        self.read_items(items, child, &below, named)?;
                        Some(child)
                    } else if let Some(file) = file_of(folder, &name, &item.attrs) {
                        let parent = &self.modules[module];
                        let full = match parent.parent {
                            Some(_) => format!("{}::{name}", parent.name),
                            None => name.clone(),
                        };
                        Some(self.read_file(&file, &full, Some(scope), named)?)
                    } else {
                        None
                    };
                    if let Some(child) = child {
                        self.scopes[scope].names.insert(name, Name::Scope(child));
                    }
                }
                Item::Use(item) => {
                    let on = !matches!(item.vis, Visibility::Inherited);
                    self.read_use(scope, on, &mut Vec::new(), &item.tree, named);
                }
                item => {
                    if let Some(name) = name_of(item) {
                        if is_type(item) {
                            let line = item.span().start().line;
                            self.modules[module].types.push((name.clone(), line));
                        }
                        self.scopes[scope].names.insert(name, Name::Item);
                    }
                    let mut reader = Reader {
                        tree: self,
                        scope,
                        named,
                    };
                    reader.visit_item(item);
                }
            }
        }
        Ok(())
    }

    /// `on`: the names are handed on to others, which alone makes no arrow.
    fn read_use(
        &mut self,
        scope: usize,
        on: bool,
        path: &mut Vec<String>,
        tree: &UseTree,
        named: &mut Names,
    ) {
        let mut leaf = |names: &mut BTreeMap<String, Name>, end: String, name: String| {
            let mut whole = path.clone();
            if end != "self" || whole.is_empty() {
                whole.push(end);
            }
            let name = if name == "self" {
                whole.last().cloned().unwrap_or_default()
            } else {
                name
            };
            if !on {
                named.push((scope, whole.clone()));
            }
            names.entry(name).or_insert(Name::Alias(whole, on));
        };
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.read_use(scope, on, path, &tree.tree, named);
                path.pop();
            }
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    self.read_use(scope, on, path, tree, named);
                }
            }
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                leaf(&mut self.scopes[scope].names, name.clone(), name);
            }
            UseTree::Rename(tree) => {
                let (end, name) = (tree.ident.to_string(), tree.rename.to_string());
                leaf(&mut self.scopes[scope].names, end, name);
            }
            UseTree::Glob(_) => {
                if !on {
                    named.push((scope, path.clone()));
                }
                self.scopes[scope].globs.push(path.clone());
            }
        }
    }

    /// Turns names into arrows.
    fn draw(&mut self, named: &Names, library: Option<(&str, usize)>) {
        let mut arrows: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (scope, path) in named {
            if let [name] = &path[..] {
                // A name alone was brought here by a `use`, which counts itself, but for those
                // that are handed on.
                let alias = self.scopes[*scope].names.get(name);
                if !matches!(alias, Some(Name::Alias(_, true))) && !is_keyword(name) {
                    continue;
                }
            }
            let (found, name) = match self.find(*scope, path, library, &mut Seen::new()) {
                Some(Found::Item(scope, name)) => (scope, name),
                Some(Found::Scope(scope)) => (scope, "*".to_owned()),
                None => continue,
            };
            let (from, to) = (self.scopes[*scope].module, self.scopes[found].module);
            if from != to {
                arrows.entry((from, to)).or_default().insert(name);
            }
        }
        self.arrows = arrows;
    }

    fn find(
        &self,
        scope: usize,
        path: &[String],
        library: Option<(&str, usize)>,
        seen: &mut Seen,
    ) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let mut at = match &**first {
            "crate" => self.scopes[scope].root,
            "self" => scope,
            "super" => self.scopes[scope].parent?,
            name if library.is_some_and(|(library, _)| library == name) => library?.1,
            name => match self.name(scope, name, library, seen)? {
                Found::Scope(scope) => scope,
                item @ Found::Item(..) => return Some(item),
            },
        };
        for name in rest {
            at = match &**name {
                "super" => self.scopes[at].parent?,
                "self" => at,
                name => match self.name(at, name, library, seen) {
                    Some(Found::Scope(scope)) => scope,
                    Some(item) => return Some(item),
                    // Made by a macro: it belongs to the last module that is known.
                    None => break,
                },
            };
        }
        Some(Found::Scope(at))
    }

    fn name(
        &self,
        scope: usize,
        name: &str,
        library: Option<(&str, usize)>,
        seen: &mut Seen,
    ) -> Option<Found> {
        match self.scopes[scope].names.get(name) {
            Some(Name::Item) => return Some(Found::Item(scope, name.to_owned())),
            Some(Name::Scope(scope)) => return Some(Found::Scope(*scope)),
            // `use openssl::x509` beside a call of `x509::f` names nothing of ours.
            Some(Name::Alias(..)) if !seen.insert((scope, name.to_owned())) => return None,
            Some(Name::Alias(path, _)) if path.first().is_some_and(|first| first != name) => {
                return self.find(scope, path, library, seen);
            }
            Some(Name::Alias(..)) => return None,
            None => {}
        }
        if !seen.insert((scope, name.to_owned())) {
            return None;
        }
        let globs = self.scopes[scope].globs.iter();
        globs
            .into_iter()
            .find_map(|path| match self.find(scope, path, library, seen)? {
                Found::Scope(other) if other != scope => self.name(other, name, library, seen),
                _ => None,
            })
    }
}

/// Where the files of a file's child modules lie.
fn folder_of(file: &Path, is_root: bool) -> PathBuf {
    let parent = file.parent().unwrap_or(Path::new(""));
    match file.file_stem() {
        Some(stem) if !is_root && stem != "mod" => parent.join(stem),
        _ => parent.to_owned(),
    }
}

fn file_of(folder: &Path, name: &str, attributes: &[Attribute]) -> Option<PathBuf> {
    let name = name.trim_start_matches("r#");
    let told = attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(meta) if meta.path.is_ident("path") => match &meta.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
    let paths = match told {
        Some(told) => vec![folder.join(told)],
        None => vec![
            folder.join(format!("{name}.rs")),
            folder.join(name).join("mod.rs"),
        ],
    };
    paths.into_iter().find(|path| path.is_file())
}

fn is_keyword(name: &str) -> bool {
    matches!(name, "crate" | "self" | "super" | "Self")
}

/// Whether an item is built for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text == "test" || text.starts_with("all (test") || text.starts_with("any (test")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_type(item: &Item) -> bool {
    matches!(
        item,
        Item::Enum(_) | Item::Struct(_) | Item::Trait(_) | Item::Type(_) | Item::Union(_)
    )
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Gathers the paths of an item.
struct Reader<'a> {
    tree: &'a mut Tree,
    scope: usize,
    named: &'a mut Names,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.named.push((self.scope, names.collect()));
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // In a function; its names are used there alone, which makes no difference here.
        self.tree
            .read_use(self.scope, false, &mut Vec::new(), &item.tree, self.named);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.read_tokens(call.tokens.clone());
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    // `pub(super)` and `#[serde(with = ..)]` are no imports.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

impl Reader<'_> {
    /// Paths among the words given to a macro, which have no grammar.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(name.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.read_tokens(group.stream());
                }
                _ => self.end(&mut path),
            }
            colons = 0;
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.named.push((self.scope, std::mem::take(path)));
        }
        path.clear();
    }
}
