// Panel 8: where the parameters are. Boxes in proportion, formulas that sum to the total.

const PART_NAMES = {
  "token embedding": { zh: "token 向量表", en: "token embedding" },
  "position embedding": { zh: "位置向量表", en: "position embedding" },
  "norms of the blocks": { zh: "各层的归一化", en: "norms of the blocks" },
  "token shifts of the blocks": { zh: "各层的前移混合", en: "token shifts of the blocks" },
  "attention of the blocks": { zh: "各层的注意力", en: "attention of the blocks" },
  "MLPs of the blocks": { zh: "各层的 MLP", en: "MLPs of the blocks" },
  "final norm": { zh: "最后的归一化", en: "final norm" },
  lm_head: { zh: "输出头", en: "LM head" },
};

/** Which tensors of the state_dict belong to a part of the table. */
const PART_TENSORS = {
  "token embedding": /^token_embedding\./,
  "position embedding": /^position_embedding\./,
  "norms of the blocks": /^blocks\.\d+\.norm[12]\./,
  "token shifts of the blocks": /^blocks\.\d+\.shift[12]\./,
  "attention of the blocks": /^blocks\.\d+\.attention\./,
  "MLPs of the blocks": /^blocks\.\d+\.mlp\./,
  "final norm": /^final_norm\./,
  lm_head: /^lm_head\./,
};

/** The letters of the formulas and their numbers: {V, T, C, D, F, L}. */
function formulaLetters(file) {
  const { n_layer, n_head, n_embd, context_size, mlp } = file.params.model;
  const F = mlp === "swiglu" ? 8 * Math.ceil(n_embd / 3) : 4 * n_embd;
  return { V: file.vocab.size, T: context_size, C: n_embd, D: n_embd / n_head, F, L: n_layer };
}

/** "V × C" -> "3035 × 128". */
function fillFormula(formula, letters) {
  return formula.replace(/\b[VTCDFL]\b/g, (letter) => letters[letter]);
}

/**
 * Squarified treemap: boxes {x, y, width, height} whose areas are in proportion to `sizes`, the largest first.
 * They fill width × height. A row goes along the shorter side and takes boxes as long as they get more square.
 * Source: Bruls, Huizing and van Wijk 2000.
 */
function squarify(sizes, width, height) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const areas = sizes.map((size) => (size / total) * width * height);
  const boxes = [];
  const free = { x: 0, y: 0, width, height };
  for (let first = 0; first < areas.length; ) {
    const side = Math.min(free.width, free.height);
    let n = 1;
    while (first + n < areas.length && worstRatio(areas, first, n + 1, side) <= worstRatio(areas, first, n, side)) n++;
    placeRow(areas.slice(first, first + n), free, boxes);
    first += n;
  }
  return boxes;
}

/** How far from square the worst of `n` boxes gets in a row along a side of the given length. */
function worstRatio(areas, first, n, side) {
  const row = areas.slice(first, first + n);
  const depth = row.reduce((sum, area) => sum + area, 0) / side;
  return Math.max(...row.map((area) => Math.max(area / depth ** 2, depth ** 2 / area)));
}

/** Put a row along the shorter side of what is free, and take its depth away from there. */
function placeRow(row, free, boxes) {
  const upright = free.width >= free.height; // the shorter side is the left one
  const depth = row.reduce((sum, area) => sum + area, 0) / (upright ? free.height : free.width);
  let { x, y } = free;
  for (const area of row) {
    const length = area / depth;
    boxes.push(upright ? { x, y, width: depth, height: length } : { x, y, width: length, height: depth });
    if (upright) y += length;
    else x += length;
  }
  if (upright) {
    free.x += depth;
    free.width -= depth;
  } else {
    free.y += depth;
    free.height -= depth;
  }
}

/** The tensors of a part as [{name, shape, count, copies}]: those of the blocks once, with the number of blocks. */
function tensorsOfPart(part, file) {
  const { n_layer, tie_embeddings } = file.params.model;
  return Object.entries(file.trained.weights)
    .filter(([name]) => PART_TENSORS[part].test(name) && !/^blocks\.[1-9]/.test(name))
    .map(([name, { shape, data }]) => ({
      name: name.replace(/^blocks\.0\./, "blocks.*."),
      shape,
      count: data.length,
      copies: name.startsWith("blocks.") ? n_layer : 1,
      isShared: tie_embeddings && name === "lm_head.weight",
    }));
}

/** How many different numbers the model holds; a matrix that two parts share counts once. */
function countWeights(model) {
  const different = new Set(Object.values(model.weights).map(({ data }) => data));
  return [...different].reduce((sum, data) => sum + data.length, 0);
}

/** 1436684 as "1,436,684". */
function thousands(n) {
  return n.toLocaleString("en");
}

PANELS.push({
  id: "parameters",
  title: { zh: "参数", en: "Parameters" },
  lead: {
    zh: "模型学到的一切，就是这些数。每块的面积和参数个数成正比，细线把各层分开。点一块，看它由哪些张量组成，名字和 model.py 里的一样。",
    en: "All that the model has learned is these numbers. Each area is in proportion to its count of parameters; thin lines part the layers. Click one to see which tensors it is made of, by their names in model.py.",
  },

  build(root, page) {
    this.page = page;
    this.parts = page.file.parts.map(([part, formula, count]) => ({ part, formula, count }));
    this.total = this.parts.reduce((sum, { count }) => sum + count, 0);
    this.letters = formulaLetters(page.file);
    this.areas = make("div", { class: "areas", role: "group", aria: { zh: "参数的面积图", en: "areas of the parameters" } });
    this.addAreas();
    const left = make("div");
    this.addTensors(left);
    for (const note of [this.lettersNote(), this.tyingNote(), this.biasNote()]) {
      left.append(make("p", { class: "soft", say: note }));
    }
    root.append(this.areas, make("div", { class: "columns" }, left, this.makeTable()));
    this.choose(0);
  },

  update() {},

  /** The boxes, the largest first; what has no parameters (a shared lm_head) has no box. */
  addAreas() {
    const inAreas = this.parts.filter(({ count }) => count).sort((a, b) => b.count - a.count);
    const boxes = squarify(inAreas.map(({ count }) => count), 2, 1);
    inAreas.forEach((each, i) => {
      const { x, y, width, height } = boxes[i];
      const number = this.parts.indexOf(each);
      const label = make("span", { class: "area-label" });
      label.append(make("b", { say: PART_NAMES[each.part] }), make("span", { class: "number" }, thousands(each.count)));
      each.area = make("button", { type: "button", class: "area", onclick: () => this.choose(number) }, label);
      aria(each.area, this.nameOf(each));
      const percents = { left: 50 * x, top: 100 * y, width: 50 * width, height: 100 * height };
      for (const [side, value] of Object.entries(percents)) each.area.style[side] = `${value}%`;
      each.area.style.setProperty("--hue", `var(--part-${number % 8})`);
      if (each.formula.startsWith("L ×")) each.area.style.setProperty("--layers", this.letters.L);
      this.areas.append(each.area);
    });
    arrowKeys(this.areas, () => [...this.areas.children]);
  },

  nameOf({ part, count }) {
    const { zh, en } = PART_NAMES[part];
    const share = percent(count / this.total);
    return { zh: `${zh}：${thousands(count)} 个，${share}`, en: `${en}: ${thousands(count)}, ${share}` };
  },

  /** A row a part: its name, its formula in letters and in numbers, its count; below, the sum. */
  makeTable() {
    const table = make("table", { class: "parts" });
    this.parts.forEach((each, number) => {
      const key = make("span", { class: "key", "aria-hidden": "true" });
      key.style.setProperty("--hue", `var(--part-${number % 8})`);
      const onclick = () => this.choose(number);
      each.row = make("button", { type: "button", class: "part", say: PART_NAMES[each.part], onclick });
      const filled = fillFormula(each.formula, this.letters);
      const formula = make("div", { class: "formula soft" }, each.formula, make("br"), `= ${filled}`);
      const share = make("div", { class: "soft" }, percent(each.count / this.total));
      table.append(make("tr", {},
        make("th", { scope: "row" }, key, each.row, formula),
        make("td", { class: "number" }, thousands(each.count), share),
      ));
    });
    table.append(make("tr", { class: "total" },
      make("th", { scope: "row", say: { zh: "合计", en: "total" } }),
      make("td", { class: "number" }, thousands(this.total)),
    ));
    return table;
  },

  addTensors(root) {
    this.tensorsTitle = make("h3");
    this.tensors = make("table", { class: "tensors" });
    const card = make("div", { class: "card", "aria-live": "polite" }, this.tensorsTitle, this.tensors);
    const place = make("div", { class: "tensors-place" }, card);
    const most = Math.max(...this.parts.map(({ part }) => tensorsOfPart(part, this.page.file).length));
    place.style.setProperty("--rows", most); // so that nothing moves when another part is chosen
    root.append(place);
  },

  choose(number) {
    this.parts.forEach(({ area, row }, i) => {
      area?.setAttribute("aria-pressed", i === number);
      row.setAttribute("aria-pressed", i === number);
    });
    const chosen = this.parts[number];
    say(this.tensorsTitle, this.nameOf(chosen));
    this.tensors.replaceChildren(...tensorsOfPart(chosen.part, this.page.file).map((tensor) => this.tensorRow(tensor)));
  },

  tensorRow({ name, shape, count, copies, isShared }) {
    const times = copies > 1 ? `${copies} × (${shape.join(" × ")})` : shape.join(" × ");
    const shared = { zh: "共用 token_embedding.weight", en: "shared: token_embedding.weight" };
    const value = make("td", { class: "number", say: isShared ? shared : thousands(count * copies) });
    const code = make("code", {}, ...name.split(/(?<=\.)/).flatMap((word) => [word, make("wbr")])); // may break at a dot
    const title = make("th", { scope: "row" }, code, make("div", { class: "soft number" }, times));
    return make("tr", {}, title, value);
  },

  lettersNote() {
    const { V, T, C, D, F, L } = this.letters;
    const n = thousands(countWeights(this.page.file.trained));
    return {
      zh: `V 词表 ${V}，T 窗口 ${T}，C 通道 ${C}，D 每个头 ${D}，F MLP 宽 ${F}，L 层数 ${L}。逐个数这一页里的权重：${n} 个。`,
      en: `V vocabulary ${V}, T window ${T}, C channels ${C}, D head ${D}, F MLP width ${F}, L layers ${L}. Counted one by one, this page holds ${n} weights.`,
    };
  },

  tyingNote() {
    const { V, C } = this.letters;
    const [n, share] = [thousands(V * C), percent((V * C) / this.total)];
    return this.page.file.params.model.tie_embeddings ? {
      zh: `tie_embeddings: true：输出头和 token 向量表共用一张表。分开的话要多 V × C = ${n} 个参数。`,
      en: `tie_embeddings: true: the LM head shares the table of the token embedding. Apart, they would need V × C = ${n} more.`,
    } : {
      zh: `如果设 tie_embeddings: true，输出头就和 token 向量表共用一张表，少 V × C = ${n} 个参数（${share}）。`,
      en: `With tie_embeddings: true the LM head would share the table of the token embedding: V × C = ${n} fewer (${share}).`,
    };
  },

  biasNote() {
    const { C, F, L } = this.letters;
    const { bias, norm, mlp } = this.page.file.params.model;
    const inNorms = norm === "layernorm" ? (2 * L + 1) * C : 0;
    const n = thousands(L * (5 * C + (mlp === "swiglu" ? 2 : 1) * F) + inNorms);
    return bias ? {
      zh: `如果设 bias: false，各层就没有偏置，少 ${n} 个参数。`,
      en: `With bias: false the layers would have no biases: ${n} fewer.`,
    } : {
      zh: `bias: false：各层没有偏置。有偏置的话要多 ${n} 个参数。`,
      en: `bias: false: the layers have no biases. With them there would be ${n} more.`,
    };
  },
});
