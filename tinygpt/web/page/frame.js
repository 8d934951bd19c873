// The frame: what the page shows now (its state), the panels that show it, and the two languages.
//
// A text is {zh: "…", en: "…"}, or one string that is the same in both. `say` and `name` leave both in the
// element, so that switching the language reaches every text without asking the panel that wrote it.

/** The panels in their order: {id, title, lead, build(root, page), update(root, page, changed)}. */
const PANELS = [];

const FIRST_TEXT = "小兔子笑了，小猫也笑了。";
const NEAR = "60% 0px"; // a panel is brought up to date when it is less than so far from the window

/** "zh" or "en": the language in which the page speaks now. */
function language() {
  return document.documentElement.lang.startsWith("zh") ? "zh" : "en";
}

/** The text in the page's language. */
function inLanguage(text) {
  return typeof text === "string" ? text : text[language()];
}

/** Shows a text in the element. */
function say(element, text) {
  const { zh, en } = typeof text === "string" ? { zh: text, en: text } : text;
  if (element.dataset.zh === zh && element.dataset.en === en) return;
  element.dataset.zh = zh;
  element.dataset.en = en;
  element.textContent = inLanguage(text);
}

/** Names the element for screen readers. */
function aria(element, text) {
  const { zh, en } = typeof text === "string" ? { zh: text, en: text } : text;
  element.dataset.nameZh = zh;
  element.dataset.nameEn = en;
  element.setAttribute("aria-label", inLanguage(text));
}

/** Says everything again in the page's language. */
function speak() {
  const suffix = language() === "zh" ? "Zh" : "En";
  for (const element of document.querySelectorAll("[data-zh]")) element.textContent = element.dataset[language()];
  for (const element of document.querySelectorAll("[data-name-zh]")) {
    element.setAttribute("aria-label", element.dataset[`name${suffix}`]);
  }
}

/**
 * A new element: make("p", {class: "soft", say: {zh, en}, aria: {zh, en}, onclick: f, type: "button"}, child, …).
 * `say` is its text, `aria` its name for screen readers; a function becomes a listener, the rest attributes.
 */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "say") say(element, value);
    else if (key === "aria") aria(element, value);
    else if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/**
 * What the page shows and who shows it.
 *
 * state: {text, ids, signs, cut, position, layer, head, causal, scaled, language, theme}. `ids` is what the model
 * reads: <bos> and the text, of which the last context_size; `signs` are the same to look at, one sign each; `cut` is
 * how many were left out in front; `position` is the chosen index into `ids`.
 */
class Page {
  constructor(file) {
    this.file = file;
    this.panels = PANELS.map((panel) => {
      return Object.assign(Object.create(panel), { near: false, built: false, changed: new Set() });
    });
    this.lastTrace = null;
    this.state = {
      ...{ text: "", ids: [], signs: [], cut: 0, position: 0, layer: 0, head: 0 },
      ...{ causal: true, scaled: true, language: "zh", theme: "auto" },
    };
  }

  /** Builds the frame, reads what the address says (#attention/en/dark) and shows the first text. */
  start() {
    const wishes = location.hash.slice(1).split("/");
    this.state.language = wishes.find((wish) => wish === "zh" || wish === "en") ?? spokenLanguage();
    this.state.theme = wishes.find((wish) => wish === "light" || wish === "dark") ?? "auto";
    this.showLanguage();
    this.showTheme();
    this.showFacts();
    this.panels.forEach((panel, number) => this.addPanel(panel, number + 1));
    this.addButtons();
    this.showStep(this.panels[0]);
    this.watch();
    this.set({ text: FIRST_TEXT });
    this.update(this.panels[0]); // at once: what is seen first has its height before it is shown
    const wished = this.panels.find((panel) => wishes.includes(panel.id));
    if (wished) this.go(wished);
    this.buildWhenIdle();
  }

  /** Changes the state, then brings the panels in view up to date; the others follow when they come near. */
  set(changes) {
    const changed = Object.keys(changes).filter((key) => this.state[key] !== changes[key]);
    Object.assign(this.state, changes);
    if (changed.includes("text")) changed.push(...this.read("position" in changes));
    if (changed.includes("language")) this.showLanguage();
    if (changed.includes("theme")) this.showTheme();
    if (["text", "causal", "scaled"].some((key) => changed.includes(key))) this.lastTrace = null;
    for (const panel of this.panels) {
      for (const key of changed) panel.changed.add(key);
      if (panel.near) this.update(panel);
    }
  }

  /** Sets what follows from the text: ids, signs, cut and, if it was the last, the position. Returns the keys. */
  read(keepPosition) {
    const { file, state } = this;
    const ids = [file.BOS].concat(file.vocab.encode(state.text));
    const characters = [""].concat(Array.from(state.text));
    const atEnd = state.position >= state.ids.length - 1;
    state.cut = Math.max(0, ids.length - file.params.model.context_size);
    state.ids = ids.slice(state.cut);
    state.signs = characters.slice(state.cut).map((character, i) => this.sign(state.ids[i], character));
    const last = state.ids.length - 1;
    state.position = atEnd && !keepPosition ? last : Math.min(state.position, last);
    return ["ids", "signs", "cut", "position"];
  }

  /** An id as one sign: <bos> as ▶, <eos> as ■; an unknown one as the character that it stands for, or □. */
  sign(id, character = "") {
    const { BOS, EOS, UNK, vocab } = this.file;
    if (id === BOS) return "▶";
    if (id === EOS) return "■";
    if (id === UNK) return /^[^\p{C}\p{Z}\p{M}]$/u.test(character) ? character : "□";
    return vocab.show(id);
  }

  /** What the model computes for the text, with the causal mask and the scaling switched as chosen. */
  trace() {
    const { ids, causal, scaled } = this.state;
    this.lastTrace ??= this.file.trained.trace(ids, { causal, scaled });
    return this.lastTrace;
  }

  /** The model in one line: its size and how well it does. */
  showFacts() {
    const { params, vocab, metrics } = this.file;
    const { n_layer, n_head, n_embd, context_size } = params.model;
    const [count, entries] = [metrics.n_parameters, vocab.size].map((n) => n.toLocaleString("en"));
    const [test, baseline] = [metrics.test, metrics.baseline].map((score) => score.nats_per_token.toFixed(2));
    say(document.getElementById("facts"), {
      zh: `${count} 个参数；${n_layer} 层，每层 ${n_head} 个头；向量长 ${n_embd}；窗口 ${context_size} 个 token；` +
        `词表 ${entries} 项；测试损失 ${test} 奈特/token（只按字符频率猜是 ${baseline}）。`,
      en: `${count} parameters; ${n_layer} layers of ${n_head} heads; vectors of ${n_embd} numbers; ` +
        `a window of ${context_size} tokens; a vocabulary of ${entries}; ` +
        `test loss ${test} nats per token (character frequency alone: ${baseline}).`,
    });
  }

  addPanel(panel, number) {
    const title = make("h2", { id: `${panel.id}-title`, tabindex: "-1" });
    title.append(make("span", { class: "number", say: String(number) }), make("span", { say: panel.title }));
    panel.body = make("div", { class: "body" });
    panel.section = make("section", { id: panel.id, class: "panel", "aria-labelledby": title.id }, title);
    panel.section.append(make("p", { class: "lead", say: panel.lead }), panel.body);
    document.getElementById("panels").append(panel.section);

    panel.link = make("a", { href: `#${panel.id}`, onclick: (event) => this.follow(event, panel) });
    const label = make("span", { class: "label", say: panel.title });
    panel.link.append(make("span", { class: "number", say: String(number) }), label);
    document.getElementById("steps").append(make("li", {}, panel.link));
  }

  addButtons() {
    const other = { zh: "en", en: "zh" };
    document.getElementById("language").addEventListener("click", () => {
      this.set({ language: other[this.state.language] });
    });
    document.getElementById("theme").addEventListener("click", () => {
      const { theme } = this.state;
      const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
      this.set({ theme: dark ? "light" : "dark" });
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const panel of this.panels) panel.changed.add("theme");
      for (const panel of this.panels) if (panel.near) this.update(panel);
    });
  }

  /** Notes which panels are near the window and which step is being read. */
  watch() {
    const near = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const panel = this.panels.find(({ section }) => section === target);
          panel.near = isIntersecting;
          if (isIntersecting) this.update(panel);
        }
      },
      { rootMargin: NEAR },
    );
    const read = new IntersectionObserver(
      (entries) => {
        const entry = entries.findLast(({ isIntersecting }) => isIntersecting);
        if (entry) this.showStep(this.panels.find(({ section }) => section === entry.target));
      },
      { rootMargin: "-35% 0px -64% 0px" },
    );
    for (const { section } of this.panels) {
      near.observe(section);
      read.observe(section);
    }
  }

  showStep(current) {
    for (const panel of this.panels) {
      if (panel === current) panel.link.setAttribute("aria-current", "step");
      else panel.link.removeAttribute("aria-current");
    }
  }

  follow(event, panel) {
    event.preventDefault();
    this.go(panel);
    this.remember(panel.id);
    document.getElementById(`${panel.id}-title`).focus({ preventScroll: true });
  }

  /** Scrolls to a panel; everything above it is built first, so that nothing moves afterwards. */
  go(panel) {
    for (const above of this.panels.slice(0, this.panels.indexOf(panel) + 1)) this.update(above);
    panel.section.scrollIntoView();
  }

  build(panel) {
    if (panel.built) return;
    panel.built = true;
    panel.build(panel.body, this);
    for (const key of Object.keys(this.state)) panel.changed.add(key);
  }

  update(panel) {
    this.build(panel);
    if (!panel.changed.size) return;
    const changed = panel.changed;
    panel.changed = new Set();
    panel.update(panel.body, this, changed);
  }

  /** Builds one panel after the other while nothing else is to do, so that it has its height before it is seen. */
  buildWhenIdle() {
    const whenIdle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50)); // Safari has none
    const next = this.panels.find(({ built }) => !built);
    if (!next) return;
    whenIdle(() => {
      this.update(next);
      this.buildWhenIdle();
    });
  }

  showLanguage() {
    document.documentElement.lang = this.state.language === "zh" ? "zh-CN" : "en";
    speak();
    this.remember();
  }

  showTheme() {
    if (this.state.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.state.theme;
    this.remember();
  }

  /** Writes panel, language and theme into the address, the one place where a page on disk may keep them. */
  remember(panelId = location.hash.slice(1).split("/")[0]) {
    const panel = PANELS.some(({ id }) => id === panelId) ? panelId : "";
    const theme = this.state.theme === "auto" ? [] : [this.state.theme];
    history.replaceState(null, "", `#${[panel, this.state.language, ...theme].join("/")}`);
  }
}

/** One clear message in place of the page. */
function showDamage(error) {
  document.querySelector(".steps").hidden = true;
  document.documentElement.lang = spokenLanguage() === "zh" ? "zh-CN" : "en";
  const title = make("h2", { say: { zh: "这一页的数据打不开", en: "The data in this page does not open" } });
  const way = {
    zh: "文件可能没有存完整。请在项目里重新生成，再打开：dvc repro -f explore",
    en: "The file may not have been saved whole. Make it again in the project, then open it: dvc repro -f explore",
  };
  const message = make("section", { class: "damage", role: "alert" }, title);
  message.append(make("p", { say: way }), make("pre", { lang: "en" }, error.message));
  document.getElementById("panels").replaceChildren(message);
  speak();
}

/** "zh" or "en": what the browser's user speaks. */
function spokenLanguage() {
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}
