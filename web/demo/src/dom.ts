/** Helper functions for the DOM. */

/** Returns the element with this id, which must exist. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** Creates an element. */
export function createElement<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Returns a copy of the single element in a `<template>`. */
export function cloneTemplate(template: string): HTMLElement {
  const [element] = byId<HTMLTemplateElement>(template).content.children;
  return element?.cloneNode(true) as HTMLElement;
}

/** Returns the first descendant that matches a selector; it must exist. */
export function child<T extends HTMLElement = HTMLElement>(of: HTMLElement, selector: string): T {
  const found = of.querySelector<T>(selector);
  if (!found) throw new Error(`the element has no ${selector}`);
  return found;
}
