package tools

// fileTypes are the types of files that Grep knows, with ripgrep's names, and
// the globs of each.
var fileTypes = map[string]string{
	"c": "*.c *.h *.H *.cats", "cpp": "*.cpp *.cc *.cxx *.C *.h *.hh *.hpp *.hxx *.H *.inl", "cs": "*.cs", "csharp": "*.cs",
	"clojure": "*.clj *.cljc *.cljs *.cljx", "cmake": "*.cmake CMakeLists.txt", "config": "*.cfg *.conf *.config *.ini",
	"css": "*.css *.scss", "csv": "*.csv", "dart": "*.dart", "docker": "*Dockerfile*", "elixir": "*.ex *.exs *.eex *.heex",
	"elm": "*.elm", "erlang": "*.erl *.hrl", "fsharp": "*.fs *.fsx *.fsi", "go": "*.go", "graphql": "*.graphql *.graphqls",
	"groovy": "*.groovy *.gradle", "h": "*.h *.hh *.hpp", "haskell": "*.hs *.lhs", "html": "*.htm *.html *.ejs",
	"java": "*.java *.jsp *.jspx *.properties", "js": "*.js *.jsx *.vue *.cjs *.mjs", "json": "*.json composer.lock *.sarif",
	"jsonl": "*.jsonl", "julia": "*.jl", "jupyter": "*.ipynb *.jpynb", "kotlin": "*.kt *.kts", "less": "*.less", "lisp": "*.el *.lisp *.lsp *.jl *.sc *.scm",
	"log": "*.log", "lua": "*.lua", "make": "*.mak *.mk GNUmakefile Gnumakefile gnumakefile makefile Makefile",
	"markdown": "*.markdown *.md *.mdown *.mkdn *.mkd *.mdwn *.mdx", "md": "*.markdown *.md *.mdown *.mkdn *.mkd *.mdwn *.mdx",
	"nix": "*.nix", "objc": "*.h *.m", "ocaml": "*.ml *.mli *.mll *.mly", "perl": "*.perl *.pl *.PL *.plh *.plx *.pm *.t",
	"php": "*.php *.php3 *.php4 *.php5 *.phtml", "protobuf": "*.proto", "ps": "*.cdxml *.ps1 *.ps1xml *.psd1 *.psm1",
	"py": "*.py *.pyi", "python": "*.py *.pyi", "r": "*.R *.r *.Rmd *.Rnw", "rst": "*.rst",
	"ruby": "config.ru Gemfile .irbrc Rakefile *.gemspec *.rb *.rbw", "rust": "*.rs", "sass": "*.sass *.scss", "scala": "*.scala *.sbt",
	"sh": "*.sh *.bash *.zsh *.ksh *.csh *.tcsh .bashrc .bash_profile .profile .zshrc", "sql": "*.sql *.psql", "svelte": "*.svelte", "svg": "*.svg",
	"swift": "*.swift", "tex": "*.tex *.ltx *.cls *.sty *.bib *.dtx *.ins", "tf": "*.tf *.tfvars *.tf.json", "thrift": "*.thrift",
	"toml": "*.toml Cargo.lock", "ts": "*.ts *.tsx *.cts *.mts", "txt": "*.txt", "typescript": "*.ts *.tsx *.cts *.mts",
	"vue": "*.vue", "wasm": "*.wat *.wast", "xml": "*.xml *.xml.dist *.dtd *.xsl *.xslt *.xsd *.xjb *.rng *.sch *.xhtml",
	"yaml": "*.yaml *.yml", "zig": "*.zig",
}
