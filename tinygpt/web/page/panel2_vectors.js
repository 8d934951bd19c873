// Panel 2: token vector + position vector = input.

PANELS.push({
  id: "vectors",
  title: { zh: "向量", en: "Vectors" },
  lead: {
    zh: "编号只是门牌。每个编号从一张表里取出自己的一行数：token 向量，说“这里是什么”。这些数都是训练出来的。",
    en:
      "An id is only a house number. With it the model takes a row of numbers from a table: the token vector, " +
      "which says what stands here. All these numbers were learned.",
  },

  build(root, page) {
    const { n_embd, position } = page.file.params.model;
    this.ribbon = new Ribbon(root, page);
    this.explanation = make("p");
    const card = make("div", { class: "card" });
    this.strips = new Strips(card, {
      name: { zh: `${n_embd} 个通道的向量`, en: `vectors of ${n_embd} channels` },
      tell: (channel) => this.sum(channel),
    });
    this.scale = new Scale(card);
    this.twin = make("p", { class: "soft notes" });
    root.append(this.explanation, card, this.twin);
    this.learned = position === "learned";
    say(this.explanation, this.learned ? LEARNED_POSITIONS : ROTARY_POSITIONS);
  },

  update(root, page, changed) {
    this.ribbon.update(changed);
    if (!["ids", "position", "theme"].some((key) => changed.has(key))) return;
    const { position, ids, signs } = page.state;
    const C = page.file.params.model.n_embd;
    const { tokenVectors, positionVectors, input } = page.trace();
    this.vectors = [tokenVectors, positionVectors, input].map((vectors) => vectors && rowOf(vectors, position, C));
    const [token, place, sum] = this.vectors;
    const id = ids[position];
    const ofToken = { zh: `token 向量：编号 ${id} 的一行`, en: `token vector: row ${id}` };
    const ofPosition = { zh: `位置向量：位置 ${position} 的一行`, en: `position vector: row ${position}` };
    const rows = [{ label: ofToken, vector: token }];
    if (place) rows.push({ sign: "+", label: ofPosition, vector: place });
    rows.push({ sign: "=", label: { zh: "输入", en: "input" }, vector: sum });
    this.strips.draw(rows);
    this.scale.draw(largestOf(...rows.map(({ vector }) => vector)));
    this.showTwin(ids, signs, position);
  },

  /** For the note: how the channel's sum is made. */
  sum(channel) {
    const [token, place, sum] = this.vectors.map((vector) => vector && number(vector[channel], 4));
    return place ? [`${token} + ${place} = ${sum}`] : [];
  },

  /** Does the chosen character stand anywhere else? */
  showTwin(ids, signs, position) {
    const twins = ids.map((id, i) => (id === ids[position] && i !== position ? i : -1)).filter((i) => i >= 0);
    const places = twins.slice(0, 5).join(", ");
    say(this.twin, !twins.length ? NO_TWIN : this.learned ? twinNote(places) : rotaryTwinNote(places));
  },
});

const NO_TWIN = {
  zh: "这个字在文中只出现一次。选一个出现两次的字，比一比。",
  en: "This character stands here once. Choose one that stands twice, and compare.",
};

function twinNote(places) {
  return {
    zh: `同一个字也在位置 ${places}：token 向量一样，位置向量不同，所以输入也不同。`,
    en: `The same character also stands at ${places}: the same token vector, another position vector, another input.`,
  };
}

function rotaryTwinNote(places) {
  return {
    zh: `同一个字也在位置 ${places}：token 向量一样，输入也完全一样。`,
    en: `The same character also stands at ${places}: the same token vector and exactly the same input.`,
  };
}

const LEARNED_POSITIONS = {
  zh: "同一个字站在不同的地方，意思会变，所以再从第二张表取一行：位置向量，说“这是第几个”。两行逐个通道相加，就是第一层的输入。指着色条，看每个通道的数。",
  en:
    "A character means different things in different places, so a second table gives another row: the position " +
    "vector, which says where it stands. Channel by channel the two are added up, and the sum goes into the first " +
    "layer. Point at the strips to see each channel's number.",
};

const ROTARY_POSITIONS = {
  zh: "这个模型没有位置向量：它用 RoPE，把位置放进注意力里，按位置转动查询和键。转动的样子见第 3 步。所以输入就是 token 向量本身。",
  en:
    "This model has no position vector: with RoPE the position enters inside attention, which turns queries and " +
    "keys by their position. Step 3 shows the rotation. So the input is the token vector itself.",
};
