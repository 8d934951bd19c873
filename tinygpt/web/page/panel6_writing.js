// Panel 6: writing, the trained model beside the untrained one.

const MS_OF_A_FRAME = 12; // what writing may take of each frame; the rest is for the reader's typing and scrolling
const LONGEST_WRITING = 5000;

/** One model and what it writes: a box of text, what it still sees of it, how fast it is. */
class WritingPane {
  constructor(root, title) {
    this.box = make("div", { class: "written", tabindex: "0", lang: "zh-CN", role: "group", aria: title });
    this.parts = Object.fromEntries(["prompt gone", "prompt seen", "new gone", "new seen", "end"].map((name) => {
      return [name, make("span", { class: name })];
    }));
    this.box.append(...Object.values(this.parts));
    this.status = make("p", { class: "soft number status" });
    this.window = make("p", { class: "soft number window" });
    this.copied = button(make("div", {}), { label: COPY, onClick: () => this.copy() });
    const head = make("div", { class: "pane-head" }, make("h3", { say: title }), this.copied);
    root.append(make("div", { class: "pane" }, head, this.box, this.status, this.window));
    this.writer = null;
  }

  get isDone() {
    return this.writer.done;
  }

  /** A new text; options: {prompt, seed, temperature, top_k, max_new_chars}. */
  begin(model, file, options) {
    this.writer = new Writer(model, file, options);
    this.file = file;
    this.seconds = 0;
    this.signs = Array.from(options.prompt); // sign i is that of id i + 1: <bos> is not shown
    this.nPrompt = this.signs.length;
    say(this.copied, COPY);
    this.show();
  }

  /** One more character, if the text has not ended. */
  next() {
    if (this.isDone) return;
    const start = performance.now();
    this.writer.next();
    this.seconds += (performance.now() - start) / 1000;
    for (const id of this.writer.ids.slice(this.signs.length + 1)) this.signs.push(this.file.vocab.decode([id]) || "□");
  }

  show() {
    const { start } = this.writer.window;
    const atEnd = this.box.scrollTop + this.box.clientHeight > this.box.scrollHeight - 30;
    const gone = Math.max(0, start - 1);
    const firstSeen = Math.max(gone, this.nPrompt);
    this.put("prompt gone", 0, Math.min(gone, this.nPrompt));
    this.put("prompt seen", gone, this.nPrompt);
    this.put("new gone", this.nPrompt, gone);
    this.put("new seen", firstSeen, this.signs.length);
    this.parts.end.textContent = this.writer.reason === "eos" ? " <eos>" : "";
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
    this.sayStatus();
    this.sayWindow();
  }

  put(part, from, to) {
    this.parts[part].textContent = this.signs.slice(from, Math.max(from, to)).join("");
  }

  sayStatus() {
    const n = this.signs.length - this.nPrompt;
    const speed = n ? number(n / this.seconds, 0) : "–";
    const end = {
      null: { zh: "", en: "" },
      eos: { zh: "；抽到 <eos>，故事结束", en: "; <eos> was drawn, the story ends" },
      length: { zh: "；写满了", en: "; the length is reached" },
    }[this.writer.reason];
    say(this.status, {
      zh: `新写 ${n} 字，每秒算 ${speed} 字${end.zh}`,
      en: `${n} new, computed ${speed} a second${end.en}`,
    });
  }

  sayWindow() {
    const { start, length } = this.writer.window;
    const size = this.writer.model.params.context_size;
    say(this.window, start ? {
      zh: `窗口从第 ${start} 个 token 开始：灰色的字看不见了`,
      en: `The window starts at token ${start}: what is grey is out of sight`,
    } : {
      zh: `窗口从第 0 个 token 开始，装了 ${length} / ${size} 个`,
      en: `The window starts at token 0 and holds ${length} of ${size}`,
    });
  }

  async copy() {
    if (!this.writer) return;
    await copyText(this.signs.join(""));
    say(this.copied, { zh: "已复制", en: "Copied" });
  }
}

const COPY = { zh: "复制", en: "Copy" };

/** Into the clipboard; where the browser does not lend it to a page on disk, by way of a selection. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = make("textarea", { class: "unseen" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}

PANELS.push({
  id: "writing",
  title: { zh: "写作", en: "Writing" },
  lead: {
    zh: "写作就是重复：读、打分、抽一个字、接上，再来一遍。抽到 <eos> 就停。左右两个模型拿到同样的开头和种子，一个训练过，一个还是初始的随机数。",
    en: "Writing is repetition: read, score, draw a character, append it, once more. It stops at <eos>. Both models get the same prompt and seed; one was trained, the other still has its random initial numbers.",
  },

  build(root, page) {
    const { sample } = page.file.params;
    this.page = page;
    this.isRunning = false;
    const prompts = make("div", { class: "row prompts", role: "group", aria: { zh: "开头", en: "prompts" } });
    sample.prompts.forEach((prompt, i) => {
      const onclick = () => this.choose(prompt, sample.seed + i);
      prompts.append(make("button", { type: "button", lang: "zh-CN", onclick }, prompt));
    });
    this.prompt = make("textarea", { id: "prompt", rows: "2", lang: "zh-CN", spellcheck: "false" });
    const settings = make("div", { class: "card row settings" });
    this.controls = new SamplingControls(settings, page);
    this.seed = new NumberField(settings, { label: { zh: "种子", en: "Seed" }, value: 0, min: 0, max: LARGEST_SEED });
    this.length = new NumberField(settings, {
      ...{ label: { zh: "最多新写", en: "New characters at most" }, value: sample.max_new_chars },
      ...{ min: 1, max: LONGEST_WRITING },
    });
    root.append(make("label", { for: "prompt", say: { zh: "开头", en: "Prompt" } }), this.prompt, prompts, settings);
    this.addButtons(root);
    const panes = make("div", { class: "columns panes" });
    this.trained = new WritingPane(panes, { zh: "训练过", en: "Trained" });
    this.untrained = new WritingPane(panes, { zh: "未训练", en: "Untrained" });
    this.panes = [this.trained, this.untrained];
    root.append(panes, make("p", { class: "soft", say: {
      zh: "同一个种子总是写出同一段文字。窗口滑动以后，每个位置的编号都变了，所以每写一个字都要把整个窗口重读一遍，速度会慢下来。",
      en: "The same seed always writes the same text. Once the window slides, every position has a new number, so the whole window is read again for each character, and writing slows down.",
    } }));
    this.choose(sample.prompts[0], sample.seed);
    this.showButtons();
  },

  addButtons(root) {
    const row = make("div", { class: "row" });
    this.startButton = button(row, { label: { zh: "开始", en: "Start" }, onClick: () => this.start() });
    this.startButton.classList.add("main");
    this.stopButton = button(row, { label: STOP, onClick: () => (this.isRunning ? this.stop() : this.run()) });
    this.stepButton = button(row, { label: { zh: "写一个字", en: "One character" }, onClick: () => this.step() });
    root.append(row);
  },

  update() {
    this.controls.update();
  },

  choose(prompt, seed) {
    this.prompt.value = prompt;
    this.seed.value = seed;
  },

  isDone() {
    return this.panes.every((pane) => pane.isDone);
  },

  begin() {
    const { file, state } = this.page;
    const options = {
      ...{ prompt: this.prompt.value, seed: this.seed.value, max_new_chars: this.length.value },
      ...{ temperature: state.temperature, top_k: state.top_k },
    };
    this.trained.begin(file.trained, file, options);
    this.untrained.begin(file.untrained, file, options);
  },

  start() {
    this.begin();
    this.run();
  },

  run() {
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.frame());
    this.isRunning = true;
    this.showButtons();
  },

  stop() {
    cancelAnimationFrame(this.pending);
    this.isRunning = false;
    this.showButtons();
  },

  /** One more character of each, and wait. */
  step() {
    if (!this.trained.writer) this.begin();
    for (const pane of this.panes) {
      pane.next();
      pane.show();
    }
    this.showButtons();
  },

  /** Writes for a part of the frame, then lets the browser do what else there is to do. */
  frame() {
    const end = performance.now() + MS_OF_A_FRAME;
    while (performance.now() < end && !this.isDone()) {
      for (const pane of this.panes) pane.next();
    }
    for (const pane of this.panes) pane.show();
    if (this.isDone()) this.stop();
    else this.pending = requestAnimationFrame(() => this.frame());
  },

  showButtons() {
    const isBegun = Boolean(this.trained.writer);
    const isOpen = isBegun && !this.isDone();
    say(this.stopButton, isOpen && !this.isRunning ? { zh: "继续", en: "Continue" } : STOP);
    this.stopButton.disabled = !isOpen;
    this.stepButton.disabled = this.isRunning || (isBegun && !isOpen);
  },
});

const STOP = { zh: "停", en: "Stop" };
