"""Tasks about closed facts: every pair is taught, and held out is only how one asks for it."""

from .grammar import pick
from .lists import pick_pair
from .split import fits
from .words import FLOWERS, FOODS, SPECIES, TOYS, a, cap


def pairs(text: str) -> dict[str, str]:
    return dict(p.strip().split("=") for p in text.replace("\n", " ").split(","))


PLURAL = pairs("""mouse=mice,foot=feet,child=children,tooth=teeth,man=men,woman=women,goose=geese,leaf=leaves,
fox=foxes,box=boxes,baby=babies,bus=buses,wolf=wolves,berry=berries,knife=knives,story=stories,city=cities,
bush=bushes,dish=dishes,peach=peaches,glass=glasses,puppy=puppies,pony=ponies,sheep=sheep,fish=fish,deer=deer,
cat=cats,dog=dogs,tree=trees,star=stars,ball=balls,kite=kites,cup=cups,hat=hats,boat=boats,drum=drums,book=books,
bell=bells,shell=shells,key=keys,spoon=spoons,bird=birds,bear=bears,frog=frogs,duck=ducks,cow=cows,hen=hens,
apple=apples,pear=pears,egg=eggs,flower=flowers,house=houses,shoe=shoes,chair=chairs,table=tables,cloud=clouds""")
OPPOSITE = pairs("""big=small,hot=cold,up=down,day=night,fast=slow,happy=sad,open=closed,wet=dry,loud=quiet,
full=empty,light=dark,high=low,hard=soft,early=late,near=far,in=out,long=short,young=old,good=bad,rich=poor,
strong=weak,clean=dirty,left=right,first=last,thick=thin,sweet=sour,true=false,begin=end,push=pull,
yes=no,always=never,over=under,give=take,laugh=cry,win=lose,summer=winter,morning=evening""")
OPPOSITE |= {y: x for x, y in OPPOSITE.items()}
SOUND = pairs("""cow=moo,dog=woof,cat=meow,duck=quack,sheep=baa,pig=oink,horse=neigh,bee=buzz,owl=hoot,lion=roar,
frog=ribbit,snake=hiss,hen=cluck,mouse=squeak,crow=caw,wolf=howl,bird=tweet,goose=honk""")
HOME = pairs("""bird=a nest,bee=a hive,dog=a kennel,fish=the water,bear=a cave,rabbit=a burrow,horse=a stable,
spider=a web,pig=a pen,owl=a tree,cow=a barn,fox=a den,ant=a hill,monkey=the jungle,camel=the desert,
whale=the sea,frog=a pond,beaver=a lodge,snail=a shell,mole=a tunnel""")
YOUNG = pairs("""dog=puppy,cat=kitten,cow=calf,sheep=lamb,hen=chick,duck=duckling,horse=foal,bear=cub,pig=piglet,
goat=kid,swan=cygnet,frog=tadpole,deer=fawn,goose=gosling""")
COLOR = pairs("""grass=green,snow=white,the sky=blue,the sun=yellow,a carrot=orange,a tomato=red,a banana=yellow,
coal=black,milk=white,a frog=green,a lemon=yellow,a plum=purple,a crow=black,a pig=pink,chocolate=brown,
an elephant=gray,a swan=white,the sea=blue,a cherry=red,a leaf=green""")
LEGS = pairs("""dog=4,bird=2,spider=8,cat=4,bee=6,fish=0,horse=4,ant=6,snake=0,duck=2,cow=4,hen=2,fox=4,child=2,
bear=4,owl=2,ladybug=6,snail=0,frog=4,whale=0""")
RHYME = pairs("""cat=hat,house=mouse,bee=tree,dog=frog,star=car,moon=spoon,cake=lake,bear=chair,fox=box,goat=boat,
king=ring,bell=shell,light=night,rain=train,day=play,sand=hand,book=cook,bed=red,sun=bun,snow=crow,pig=wig,
kite=white,school=pool,nose=rose,ship=lip,pail=snail,hen=pen,fly=sky,sleep=sheep,tall=ball""")
JOB = pairs("""baker=bakes bread,farmer=works on a farm,sailor=sails a ship,painter=paints pictures,
teacher=teaches children,doctor=helps sick people,gardener=grows flowers,fisher=catches fish,tailor=makes clothes,
singer=sings songs,dancer=dances,shepherd=looks after sheep,builder=builds houses,cook=makes food,miller=makes flour""")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
SEASONS = "spring summer autumn winter".split()


def fact(table, questions, answer):
    """A task that asks for an entry of a table, always with the same answer."""

    keys = list(table)

    def task(rng, split):
        question, key = pick_pair(rng, split, questions, keys)
        value = table[key]
        return (
            question.format(key, a=a(key)),
            answer.format(key, value, A=cap(a(key)), K=cap(key), V=a(value)),
        )

    return task


ASK_SUCCESSOR = ("What comes after {}?", "What is next after {}?", "What comes before {}?")


def calendar(rng, split):
    """Asks for the day, month or season after or before another."""
    question, name = pick_pair(rng, split, ASK_SUCCESSOR, DAYS + MONTHS + SEASONS)
    names = next(names for names in (DAYS, MONTHS, SEASONS) if name in names)
    word, step = ("before", -1) if "before" in question else ("after", 1)
    other = names[(names.index(name) + step) % len(names)]
    return question.format(name), f"{cap(other)} comes {word} {name}."


KINDS = {"animal": SPECIES, "food": FOODS, "toy": TOYS[:5], "flower": FLOWERS[:4]}
KINDS["color"] = "red blue green yellow purple black white pink".split()
KINDS["toy"] = "ball kite doll drum teddy puzzle".split()


def kind(rng, split):
    """Asks for the kind of a word."""
    while True:
        right, wrong = rng.sample(list(KINDS), 2)
        question = "Is {} %s or %s?" % tuple(a(x) for x in rng.sample((right, wrong), 2))
        words = KINDS[right] + KINDS[wrong]
        # Of the few toys and colors, no pair may be held out.
        if any(fits(split, question, word) for word in words):
            break
    question, word = pick_pair(rng, split, [question], words)
    right = right if word in KINDS[right] else wrong
    if right == "color":
        return question.format(word), f"{cap(word)} is a color."
    return question.format(a(word)), f"{cap(a(word))} is {a(right)}."


def odd_one(rng, split):
    """Asks for the one of three words that is of another kind."""
    right, other = rng.sample(list(KINDS), 2)
    while True:
        odd, *rest = pick(rng, KINDS[right]), *rng.sample(KINDS[other], 2)
        if fits(split, "odd", odd, *rest):
            break
    xs = [odd, *rest]
    rng.shuffle(xs)
    return f"Which word is {a(right)}: {', '.join(xs)}?", f"The {right} is {odd}."


TASKS = {
    "plural": fact(PLURAL, ("What is the plural of {}?", "One {}, two ...?", "Tell me the plural of {}."), "One {0}, two {1}."),
    "opposite": fact(OPPOSITE, ("What is the opposite of {}?", "Tell me the opposite of {}.", "Opposite of {}?"), "The opposite of {0} is {1}."),
    "sound": fact(SOUND, ("What sound does {a} make?", "What does the {} say?", "What sound does the {} make?"), "{A} says {1}."),
    "home": fact(HOME, ("Where does {a} live?", "What is the home of {a}?", "Where is the home of the {}?"), "{A} lives in {1}."),
    "young": fact(YOUNG, ("What is a baby {} called?", "What do we call a baby {}?", "What is the name for a young {}?"), "A baby {0} is called {V}."),
    "color": fact(COLOR, ("What color is {}?", "Which color is {}?", "Tell me the color of {}."), "{K} is {1}."),
    "legs": fact(LEGS, ("How many legs does {a} have?", "How many legs has {a}?", "Legs of {a}?"), "{A} has {1} legs."),
    "rhyme": fact(RHYME, ("What rhymes with {}?", "Tell me a rhyme for {}.", "What word rhymes with {}?"), "{K} rhymes with {1}."),
    "job": fact(JOB, ("What does {a} do?", "What is the work of {a}?", "Tell me what {a} does."), "{A} {1}."),
    "calendar": calendar,
    "kind": kind,
    "odd one": odd_one,
}
