"use strict";
(() => {
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));

  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.v;
        const rows = Array.from(body.rows);
        const numeric = rows.every((row) => key(row) === "" || Number.isFinite(Number(key(row))));
        rows.sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
          return down ? -order : order;
        });
        body.append(...rows);
        table.dispatchEvent(new Event("sorted"));
      });
    });
  }

  for (const form of all("form.filter")) {
    form.hidden = false;
    const table = form.parentElement.querySelector("table.sortable");
    const [input, select, output] = ["input", "select", "output"].map((name) => form.querySelector(name));
    const rows = Array.from(table.tBodies[0].rows);
    const more = form.parentElement.querySelector("button.more");
    const things = form.dataset.things || "runs";
    const searched = (row) => (table.classList.contains("searched-whole") ? row : row.cells[0]).textContent;
    let whole = !more || rows.length <= 15;
    more?.addEventListener("click", () => {
      const first = table.querySelector("tr.beyond");
      whole = true;
      apply();
      first.tabIndex = -1;
      first.focus({ preventScroll: true });
    });
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const text = searched(row).toLowerCase();
        const fits = words.every((word) => text.includes(word));
        const chosen = select ? select.value : "";
        const kept = !chosen || row.dataset.kind === chosen || (chosen === "focus" && "focus" in row.dataset);
        row.hidden = !fits || !kept;
        count += !row.hidden;
      }
      const short = !whole && !words.length && count > 15;
      let place = 0;
      for (const row of table.tBodies[0].rows) row.classList.toggle("beyond", short && !row.hidden && ++place > 12);
      if (more) {
        more.hidden = !short;
        more.textContent = `Show all ${count} ${things}`;
      }
      output.textContent = `${short ? 12 : count} of ${rows.length} ${things}`;
    };
    table.addEventListener("sorted", apply);
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("beforeprint", () => { for (const row of rows) row.hidden = false; });
    addEventListener("afterprint", apply);
    apply();
  }

  const copied = async (text, element) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(element);
      return document.execCommand("copy");
    }
  };
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      button.textContent = (await copied(code.textContent, code)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  const chooser = document.getElementById("chooser");
  if (chooser) {
    chooser.closest("p").hidden = false;
    const show = () => {
      for (const agent of all("article.agent")) agent.hidden = chooser.value !== "" && agent.id !== chooser.value;
    };
    chooser.addEventListener("change", show);
    chooser.value = location.hash.slice(1).split("-")[0] || chooser.options[1].value;
    if (chooser.selectedIndex < 0) chooser.value = "";
    show();
    for (const link of all(".overview a")) {
      link.addEventListener("click", () => { chooser.value = link.hash.slice(1); show(); });
    }
  }

  if ("IntersectionObserver" in window) {
    const links = new Map(all(".contents a").map((link) => [link.hash.slice(1), link]));
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const link = links.get(entry.target.id);
        if (!entry.isIntersecting || !link) continue;
        for (const other of all("[aria-current]", link.closest("ol"))) other.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "0px 0px -75% 0px" });
    for (const section of all("article section")) seen.observe(section);
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open]):not(.film)");
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
})();
