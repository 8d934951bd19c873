// Panel 1: text -> ids.

PANELS.push({
  id: "ids",
  title: { zh: "编号", en: "Ids" },
  lead: {
    zh: "模型不认识字，只认识数。词表给每个字符一个编号；<bos> 放在最前面，表示故事从这里开始。词表里没有的字符都变成同一个 <unk>，模型分不清它们。",
    en:
      "The model knows no characters, only numbers. The vocabulary gives each character an id; <bos> goes in front " +
      "and says that a story begins. Characters that the vocabulary lacks all become the same <unk>: the model " +
      "cannot tell them apart.",
  },

  build(root, page) {
    const label = make("label", { for: "text", say: { zh: "写点什么", en: "Write something (in Chinese)" } });
    this.box = make("textarea", { id: "text", rows: "3", lang: "zh-CN", spellcheck: "false", autocomplete: "off" });
    this.listen(page);
    const examples = make("div", { class: "row examples" });
    for (const prompt of page.file.params.sample.prompts) {
      const take = () => page.set({ text: prompt });
      examples.append(make("button", { type: "button", lang: "zh-CN", onclick: take }, prompt));
    }
    button(examples, { label: { zh: "清空", en: "Clear" }, onClick: () => page.set({ text: "" }) });
    this.counts = make("p", { class: "counts", "aria-live": "polite" });
    this.notes = make("p", { class: "soft notes id-notes" });
    this.chips = make("ol", { class: "chips", tabindex: "0", aria: { zh: "字符和编号", en: "characters and ids" } });
    root.append(label, this.box, examples, this.counts, this.chips, this.notes);
  },

  /** Follows the typing; where the panels in view take long, it waits for a pause. */
  listen(page) {
    let cost = 0;
    let waiting = 0;
    const read = () => {
      const start = performance.now();
      page.set({ text: this.box.value });
      cost = performance.now() - start;
    };
    this.box.addEventListener("input", (event) => {
      clearTimeout(waiting);
      if (event.isComposing) return; // an input method is not done with this character
      if (cost < 30) read();
      else waiting = setTimeout(read, 200);
    });
    this.box.addEventListener("compositionend", read);
  },

  update(root, page, changed) {
    if (!changed.has("text")) return;
    const { text, ids, cut } = page.state;
    if (this.box.value !== text) this.box.value = text;
    const characters = Array.from(text);
    this.count(characters.length);
    const inWindow = ["<bos>"].concat(characters).slice(cut);
    const chips = ids.map((id, i) => this.chip(id, inWindow[i], page.state.signs[i], page.file));
    this.chips.replaceChildren(...(cut ? [this.cutChip(cut)] : []), ...chips);
    if (document.activeElement === this.box) this.chips.scrollTop = this.chips.scrollHeight;
    this.explain(page);
  },

  count(n) {
    const [characters, tokens] = [n, n + 1].map((count) => count.toLocaleString("en"));
    say(this.counts, {
      zh: `${characters} 个字符 + <bos> → ${tokens} 个 token`,
      en: `${characters} character${n === 1 ? "" : "s"} + <bos> → ${tokens} token${n ? "s" : ""}`,
    });
  },

  chip(id, character, sign, file) {
    const isUnknown = id === file.UNK;
    const shown = id === file.BOS ? "<bos>" : sign;
    const chip = make("li", { class: isUnknown ? "chip unknown" : "chip" });
    chip.append(make("span", { lang: "zh-CN", class: "character" }, shown));
    chip.append(make("span", { class: "number soft" }, isUnknown ? `${id} <unk>` : String(id)));
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    if (id !== file.BOS) chip.title = `U+${code}`;
    return chip;
  },

  cutChip(cut) {
    const chip = make("li", { class: "chip cut" }, make("span", { class: "character" }, "⋯"));
    chip.append(make("span", { class: "soft", say: { zh: `前 ${cut} 个被切掉`, en: `first ${cut} cut` } }));
    return chip;
  },

  /** What was cut, what is unknown, and how long the vocabulary is. */
  explain(page) {
    const { text, ids, cut } = page.state;
    const { params, vocab, UNK } = page.file;
    const unknown = ids.filter((id) => id === UNK).length;
    const notes = [];
    if (!text) notes.push(NOTHING_YET);
    if (cut) notes.push(cutNote(cut, params.model.context_size));
    if (unknown) notes.push(unknownNote(unknown));
    const entries = vocab.size.toLocaleString("en");
    notes.push({ zh: `词表一共 ${entries} 项。`, en: `The vocabulary has ${entries} entries.` });
    say(this.notes, joined(notes, "", " "));
  },
});

const NOTHING_YET = {
  zh: "还没有字：模型只读到 <bos>，要猜的是故事的第一个字。",
  en: "No text yet: the model reads <bos> alone and guesses the first character of a story.",
};

function cutNote(cut, contextSize) {
  const n = cut.toLocaleString("en");
  return {
    zh: `窗口只有 ${contextSize} 个 token：最前面的 ${n} 个（包括 <bos>）滑出了窗口，模型看不到。`,
    en: `The window holds ${contextSize} tokens: the first ${n} (<bos> included) slid out, unseen by the model.`,
  };
}

function unknownNote(n) {
  return {
    zh: `${n} 个字符不在词表里，用虚线框标出。`,
    en: `${n} ${n === 1 ? "character is" : "characters are"} not in the vocabulary: see the dashed frames.`,
  };
}
